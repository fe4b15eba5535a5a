// SPDX-License-Identifier: Apache-2.0
// ModuleLink: what the agent does with the kernel module while it runs: tenants are followed in
// sysfs, the module's ring tells of programs, usage is told back. Every part may be missing;
// without the module it is DirectControl and nothing else. One thread, the agent's.
#pragma once

#include <optional>
#include <string>

#include "sched/module/kernel_module.h"
#include "sched/module/kernel_tenants.h"
#include "sched/module/usage_report.h"
#include "sched/tenants/tenant_control.h"
#include "shmctl/plane/region.h"

namespace gpushare {

class ModuleLink {
 public:
  // `tenants` and `processes` outlive it. What is missing is logged.
  ModuleLink(KernelModule module, Tenants& tenants, const ProcReader& processes);

  TenantControl& control();
  // Is sysfs the truth about tenants?
  bool has_tenants() const { return kernel_tenants_.has_value(); }

  // Takes the configuration's tenants, and at the start also what an agent before this one has left
  // in `plane`: see sched/tenants/takeover.h.
  Result<> start(const Config& config, const ControlPlane& plane);
  Result<> reload(const Config& config);

  // Readable when the module has something to say; -1: it says nothing.
  int fd() { return module_.ring() == nullptr ? -1 : module_.ring()->fd(); }
  // Tells of programs; nullptr while the module is not hooked to the driver.
  KmodObserver* observer() { return module_.sees_the_driver() ? module_.ring() : nullptr; }
  // Is `used` still what observer() gives? Its hook comes and goes: with the driver, and with an
  // operator's `drain`. Looked at once a second.
  bool is_still(const Observer* used, Time now);
  // Brings tenants and sysfs together; true when anything changed. `used`: the observer of a
  // scheduler, which then reads the ring; nullptr: none does.
  bool follow(const Observer* used, Time now);

  // Usage counts from zero again, for these GPUs.
  void start_over(std::span<const GpuInfo> gpus, const Config& config);
  void describe(std::span<const GpuInfo> gpus, const Config& config);
  void publish(Time now, const State& state);

  std::string problem() const { return module_.problem(); }

 private:
  static constexpr Nanos kLook{1'000'000'000};

  Tenants& tenants_;
  const ProcReader& processes_;
  KernelModule module_;
  DirectControl direct_{tenants_};
  std::optional<KernelTenants> kernel_tenants_;
  std::optional<UsageReport> usage_report_;
  Time next_look_{};
};

}  // namespace gpushare
