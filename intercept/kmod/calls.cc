// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "shmctl/plane/fields.h"

namespace gpushare::kmod {
namespace {

gpushare_pressure pressure_record(const PressureFigures& pressure) {
  gpushare_pressure record{};
  record.total_us = static_cast<uint64_t>(pressure.total.count());
  record.avg10 = pressure.avg10;
  record.avg60 = pressure.avg60;
  record.avg300 = pressure.avg300;
  return record;
}

gpushare_usage encoded(const TenantUsage& usage) {
  gpushare_usage record{};
  put_text(record.tenant, usage.tenant);
  record.gpu_time_us = static_cast<uint64_t>(usage.gpu_time.count());
  record.throttled_us = static_cast<uint64_t>(usage.throttled.count());
  record.freezes = usage.freezes;
  record.periods = usage.periods;
  record.throttled_periods = usage.throttled_periods;
  record.turns = usage.turns;
  record.held_us = static_cast<uint64_t>(usage.held.count());
  record.some = pressure_record(usage.some);
  record.full = pressure_record(usage.full);
  std::ranges::transform(usage.by_gpu, record.by_gpu_us,
                         [](Micros time) { return static_cast<uint64_t>(time.count()); });
  record.share_permille = usage.share_permille.value_or(GPUSHARE_UNKNOWN);
  return record;
}

}  // namespace

Result<gpushare_query> query(Device& device) {
  constexpr const char* kStep = "ask the kernel module for its version";
  gpushare_query answer{};
  if (auto asked = device.call(GPUSHARE_IOC_QUERY, &answer, kStep); !asked)
    return std::unexpected(asked.error());
  if (answer.uapi_version != GPUSHARE_UAPI_VERSION ||
      answer.record_bytes != sizeof(gpushare_event) || answer.record_count == 0 ||
      (answer.record_count & (answer.record_count - 1)) != 0) {
    answer.module_version[sizeof answer.module_version - 1] = '\0';
    return make_error(
        std::errc::protocol_not_supported, kStep,
        fmt::format("gpushare.ko {} speaks version {} of the interface, this "
                    "gpushared version {}; install both from one release",
                    answer.module_version, answer.uapi_version, GPUSHARE_UAPI_VERSION));
  }
  return answer;
}

Result<> register_agent(Device& device) {
  gpushare_register argument{};
  return device.call(GPUSHARE_IOC_REGISTER, &argument, "register with the kernel module");
}

Result<> replay(Device& device) {
  gpushare_replay argument{};
  return device.call(GPUSHARE_IOC_REPLAY, &argument, "ask the kernel module who is running");
}

Result<> publish(Device& device, std::span<const TenantUsage> usages) {
  while (!usages.empty()) {
    const auto part = usages.first(std::min<std::size_t>(usages.size(), GPUSHARE_PUBLISH_MAX));
    std::vector<gpushare_usage> records(part.size());
    std::ranges::transform(part, records.begin(), encoded);
    gpushare_publish argument{};
    argument.usages = reinterpret_cast<uintptr_t>(records.data());
    argument.count = static_cast<uint32_t>(records.size());
    argument.usage_bytes = sizeof(gpushare_usage);
    if (auto done = device.call(GPUSHARE_IOC_PUBLISH, &argument, "publish use to sysfs"); !done)
      return done;
    usages = usages.subspan(part.size());
  }
  return {};
}

Result<> set_gpu(Device& device, const GpuInfo& gpu, std::string_view sharing,
                 std::string_view policy) {
  gpushare_gpu argument{};
  argument.index = gpu.instance;
  argument.sm_count = gpu.sm_count == 0 ? GPUSHARE_UNKNOWN : gpu.sm_count;
  argument.memory_bytes = gpu.memory_bytes;
  put_text(argument.uuid, gpu.uuid);
  put_text(argument.sharing, sharing);
  put_text(argument.policy, policy);
  return device.call(GPUSHARE_IOC_SET_GPU, &argument, "show a GPU in sysfs");
}

Result<> set_policy(Device& device, std::string_view name) {
  gpushare_policy argument{};
  put_text(argument.name, name);
  return device.call(GPUSHARE_IOC_SET_POLICY, &argument, "show the policy in sysfs");
}

}  // namespace gpushare::kmod
