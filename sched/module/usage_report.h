// SPDX-License-Identifier: Apache-2.0
// UsageReport: tells the kernel module what each tenant has used, for the read-only files in sysfs;
// every 100 ms, and only what has changed. One thread, the agent's.
//
// The files count from the making of the tenant. The agent counts on, at its start and when it
// finds its GPUs again, from what was published in the control plane last, or from zero where
// nothing was. So what the files showed beyond that at that time is added. The averages of
// `pressure` begin at zero then.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "intercept/kmod/calls.h"
#include "sched/module/waits.h"
#include "sched/step/state.h"
#include "sched/tenants/config.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

using namespace std::chrono_literals;

class UsageReport {
 public:
  static constexpr Nanos kInterval = 100ms;

  // `device` and `tree` outlive the object.
  UsageReport(kmod::Device& device, const SysfsTree& tree) : device_(device), tree_(tree) {}

  // Call it when the usage in the scheduler's state has begun anew, before the first step.
  void start_over(const State& state);
  // Does nothing sooner than kInterval after it last did something. Of failures in a row, the first
  // is logged; what was not told is told by the next call.
  void publish(Time now, const State& state);
  // Tells how the GPUs are shared, and by which policy.
  void describe(std::span<const GpuInfo> gpus, const Config& config);

 private:
  // What a tenant waited since start_over().
  struct Waits {
    Pressure some{}, full{};
    CapPeriods periods{};
    Nanos throttled{};  // as it was at the last look
  };
  void look(Time now, const State& state, const std::map<uint32_t, TenantUse>& uses);
  void put_waits(kmod::TenantUsage& usage) const;
  void put_gpus(kmod::TenantUsage& usage, const std::map<uint32_t, TenantUse>& uses,
                const State& state) const;
  void keep_what_is_gone(const State& state);
  void log_failure(const Result<>& done);

  kmod::Device& device_;
  const SysfsTree& tree_;
  // What is counted on from: what was shown at start_over(), of those that live on, and what was
  // used by tenants below them that are gone.
  std::map<std::string, kmod::TenantUsage> before_;
  std::map<std::string, kmod::TenantUsage> published_;
  std::map<std::string, uint32_t, std::less<>> slots_;  // of the tenants at the last publish()
  std::map<std::string, Waits> waits_;                  // by tenant
  std::map<MemberKey, Nanos> used_;                     // as it was at the last look
  std::set<uint32_t> spatial_;                          // GPUs on which programs run at once
  std::map<uint32_t, uint32_t> instances_;  // RM's, by index, of the GPUs that were described
  Time next_{}, looked_at_{};
  bool has_failed_ = false;
};

}  // namespace gpushare
