// SPDX-License-Identifier: Apache-2.0
// UsageReport: tells the kernel module what each tenant used, for the read-only files in sysfs.
// Every 100 ms, and only what changed. One thread.
//
// The files count from the making of the tenant, the agent from its start (or since it found its
// GPUs again): what the files showed then is added.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "intercept/kmod/calls.h"
#include "sched/step/state.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

// Of every tenant, by slot. The share is of all GPUs together: 1000 is every GPU all the time.
std::vector<kmod::TenantUsage> usages_of(const State& state);

class UsageReport {
 public:
  static constexpr Nanos kInterval{100'000'000};

  // Both outlive it.
  UsageReport(kmod::Device& device, const SysfsTree& tree) : device_(device), tree_(tree) {}

  // The state that is published from now on counts from zero.
  void start_over(const Tenants& tenants);
  // A failure is logged, the first of a row.
  void publish(Time now, const State& state);
  // `spatial`: which of the GPUs are shared so, by index.
  void describe(std::span<const GpuInfo> gpus, const std::string& policy,
                const std::set<uint32_t>& spatial);

 private:
  void log_failure(const Result<>& done);

  kmod::Device& device_;
  const SysfsTree& tree_;
  std::map<std::string, kmod::TenantUsage> before_;  // at start_over(), of those that live on
  std::map<std::string, kmod::TenantUsage> published_;
  Time next_{};
  bool has_failed_ = false;
};

}  // namespace gpushare
