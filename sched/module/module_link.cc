// SPDX-License-Identifier: Apache-2.0
#include "sched/module/module_link.h"

#include <utility>

#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"

namespace gpushare {

ModuleLink::ModuleLink(KernelModule module, Tenants& tenants, Roster& roster,
                       const ProcReader& processes)
    : tenants_(tenants), roster_(roster), processes_(processes), module_(std::move(module)) {
  if (const std::string problem = module_.problem(); !problem.empty())
    log_warning("the kernel module does not report programs: {}", problem);
  if (module_.tree() == nullptr) return;
  kernel_tenants_.emplace(*module_.tree(), tenants_, processes_, module_.ring() != nullptr);
  log_info("tenants and settings are those of {}", module_.tree()->root());
  if (module_.ring() == nullptr) return;
  usage_report_.emplace(*module_.device(), *module_.tree());
  module_.ring()->set_listener(
      [this](KernelNotice&& notice) { kernel_tenants_->on_notice(notice); });
}

TenantControl& ModuleLink::control() {
  if (kernel_tenants_) return *kernel_tenants_;
  return direct_;
}

Result<> ModuleLink::start(const Config& config, const std::set<ProcessId>& may_remain) {
  end_the_dead(tenants_, processes_,
               [&](const ProcessId& process) { return may_remain.contains(process); });
  if (!kernel_tenants_) {
    roster_.set_tenants_in_sysfs(false);
    return tenants_.start(config);
  }
  // A module that was loaded since the last agent knows nothing of what that had.
  const uint32_t instance = module_.tree()->instance().value_or(0);
  if (!roster_.are_tenants_in_sysfs(instance)) kernel_tenants_->hand_over(config);
  roster_.set_tenants_in_sysfs(true, instance);
  kernel_tenants_->start(config, may_remain);
  return {};
}

Result<> ModuleLink::reload(const Config& config) {
  if (!kernel_tenants_) return tenants_.reload(config);
  kernel_tenants_->reload(config);
  return {};
}

bool ModuleLink::is_still(const Observer* used, Time now) {
  if (module_.ring() == nullptr || now < next_look_) return true;
  next_look_ = now + kLook;
  return (observer() != nullptr) == (used == module_.ring());
}

bool ModuleLink::follow(const Observer* used, Time now) {
  if (!kernel_tenants_) return false;
  KmodObserver* const ring = module_.ring();
  if (ring != nullptr && used != ring) {
    constexpr uint64_t kMostAtOnce = 1024;
    const auto drained = ring->drain([](DriverEvent&&) {}, kMostAtOnce);
    if (!drained) log_error("{}", drained.error().message());
  }
  return kernel_tenants_->follow(now);
}

void ModuleLink::start_over(std::span<const GpuInfo> gpus, const Config& config,
                            const State& state) {
  if (usage_report_) usage_report_->start_over(state);
  describe(gpus, config);
}

void ModuleLink::describe(std::span<const GpuInfo> gpus, const Config& config) {
  if (kernel_tenants_) kernel_tenants_->set_gpus(gpus);
  if (usage_report_) usage_report_->describe(gpus, config);
}

void ModuleLink::publish(Time now, const State& state) {
  if (usage_report_) usage_report_->publish(now, state);
}

}  // namespace gpushare
