// SPDX-License-Identifier: Apache-2.0
#include "sched/module/usage_report.h"

#include <algorithm>
#include <cmath>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// The values of the attribute `sharing`, see kmod/ABI.
constexpr const char* kByTime = "time-slicing";
constexpr const char* kSpatially = "spatial";

Micros micros(Nanos time) { return std::chrono::duration_cast<Micros>(time); }

}  // namespace

std::vector<kmod::TenantUsage> usages_of(const State& state) {
  std::map<uint32_t, double> shares;  // by slot; a tenant of which no share is known is missing
  for (const auto& [key, member] : state.members) {
    const auto& [process, gpu] = key;
    const double share = state.accounting[gpu].share(process.pid);
    if (share >= 0) shares[member.tenant] += share;
  }
  std::vector<kmod::TenantUsage> usages;
  for (const uint32_t slot : state.tenants.slots()) {
    kmod::TenantUsage& usage = usages.emplace_back();
    usage.tenant = state.tenants.at(slot)->name;
    const auto share = shares.find(slot);
    if (share != shares.end() && !state.accounting.empty()) {
      const double part = share->second / static_cast<double>(state.accounting.size());
      usage.share_permille = static_cast<uint32_t>(std::lround(std::min(part, 1.0) * 1000));
    }
    const auto use = state.tenant_use.find(slot);
    if (use == state.tenant_use.end()) continue;
    Nanos used{};
    for (const Nanos on_gpu : use->second.used) used += on_gpu;
    usage.gpu_time = micros(used);
    usage.throttled = micros(use->second.throttled);
    usage.freezes = use->second.freezes;
  }
  return usages;
}

void UsageReport::start_over(const Tenants& tenants) {
  before_.clear();
  published_.clear();
  for (const uint32_t slot : tenants.slots()) {
    const std::string& name = tenants.at(slot)->name;
    const auto micros_of = [&](const char* file) {
      return Micros(static_cast<int64_t>(tree_.counter(name, file).value_or(0)));
    };
    before_[name] = {.tenant = name,
                     .gpu_time = micros_of("gpu_time_us"),
                     .throttled = micros_of("throttled_us"),
                     .freezes = tree_.counter(name, "freezes").value_or(0),
                     .share_permille = std::nullopt};
  }
}

void UsageReport::publish(Time now, const State& state) {
  if (now < next_) return;
  next_ = now + kInterval;
  std::vector<kmod::TenantUsage> usages = usages_of(state);
  std::erase_if(before_, [&](const auto& item) { return !state.tenants.find(item.first); });
  for (kmod::TenantUsage& usage : usages) {
    const auto before = before_.find(usage.tenant);
    if (before == before_.end()) continue;
    usage.gpu_time += before->second.gpu_time;
    usage.throttled += before->second.throttled;
    usage.freezes += before->second.freezes;
  }
  std::map<std::string, kmod::TenantUsage> present;
  for (const kmod::TenantUsage& usage : usages) present.emplace(usage.tenant, usage);
  std::erase_if(usages, [&](const kmod::TenantUsage& usage) {
    const auto before = published_.find(usage.tenant);
    return before != published_.end() && before->second == usage;
  });
  const Result<> done = kmod::publish(device_, usages);
  log_failure(done);
  if (done) published_ = std::move(present);
}

void UsageReport::describe(std::span<const GpuInfo> gpus, const std::string& policy,
                           const std::set<uint32_t>& spatial) {
  for (const GpuInfo& gpu : gpus) {
    const char* const sharing = spatial.contains(gpu.index) ? kSpatially : kByTime;
    if (const auto done = kmod::set_gpu(device_, gpu, sharing); !done) log_failure(done);
  }
  if (const auto done = kmod::set_policy(device_, policy); !done) log_failure(done);
}

void UsageReport::log_failure(const Result<>& done) {
  if (!done && !has_failed_) log_warning("{}", done.error().message());
  has_failed_ = !done;
}

}  // namespace gpushare
