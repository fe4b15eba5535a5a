// SPDX-License-Identifier: Apache-2.0
// ModuleLink: what the agent does with the kernel module while it runs: it follows the tenants in
// sysfs, takes what the module's ring tells of processes, and reports usage. Every part may be
// missing; without the module this is DirectControl and nothing else. One thread, the agent's.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "sched/module/kernel_module.h"
#include "sched/module/kernel_tenants.h"
#include "sched/module/usage_report.h"
#include "sched/tenants/tenant_control.h"
#include "shmctl/plane/roster.h"

namespace gpushare {

using namespace std::chrono_literals;

class ModuleLink {
 public:
  // `tenants`, the `roster` that it writes, and `processes` outlive the object. What is missing is
  // logged.
  ModuleLink(KernelModule module, Tenants& tenants, Roster& roster, const ProcReader& processes);

  // Through which requests change the tenants.
  TenantControl& control();
  // Returns true if sysfs is the truth about tenants.
  bool has_tenants() const { return kernel_tenants_.has_value(); }

  // Take over the configuration's tenants. At the start, what `tenants` has from an earlier agent
  // is brought together with sysfs: if the module was here before, sysfs knows better, otherwise it
  // is told. `may_remain`: of these work may be on the GPUs though they have ended, so they stay
  // where they are. Errors: those of Tenants::reload().
  Result<> start(const Config& config, const std::set<ProcessId>& may_remain);
  Result<> reload(const Config& config);

  // A descriptor that is readable when the module has something to tell; -1: it tells nothing.
  int fd() { return module_.ring() == nullptr ? -1 : module_.ring()->fd(); }
  // What tells of processes on the GPUs; nullptr while the module is not hooked to the driver.
  KmodObserver* observer() { return module_.sees_the_driver() ? module_.ring() : nullptr; }
  // Returns false if observer() no longer gives `used`: the module is hooked and unhooked with the
  // driver, and by an operator's `drain`. Looks once a second and returns true in between.
  bool is_still(const Observer* used, Time now);
  // Brings tenants and sysfs together; returns true if the tenants changed. `used`: the observer
  // that the scheduler reads. If that is not the module's ring, the ring is read here.
  bool follow(const Observer* used, Time now);

  // Usage is reported to the module (see sched/module/usage_report.h): from now on it is counted by
  // a new scheduler, of this state; which GPUs there are and how they are shared; how much was
  // used.
  void start_over(std::span<const GpuInfo> gpus, const Config& config, const State& state);
  void describe(std::span<const GpuInfo> gpus, const Config& config);
  void publish(Time now, const State& state);

  std::string problem() const { return module_.problem(); }

 private:
  static constexpr Nanos kLook = 1s;

  Tenants& tenants_;
  Roster& roster_;
  const ProcReader& processes_;
  KernelModule module_;
  DirectControl direct_{tenants_};
  std::optional<KernelTenants> kernel_tenants_;
  std::optional<UsageReport> usage_report_;
  Time next_look_{};
};

}  // namespace gpushare
