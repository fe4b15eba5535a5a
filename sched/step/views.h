// SPDX-License-Identifier: Apache-2.0
// Views: the snapshot of one GPU in the making. Filled by the scheduler at each step, from the
// processes that it accounts for and those that have the shim; its memory is used again. Pure.
#pragma once

#include <functional>
#include <vector>

#include "sched/policy/policy.h"
#include "sched/policy/tenant_tree.h"
#include "sched/step/surroundings.h"

namespace gpushare {

class Views {
 public:
  void clear();
  // Processes with a context on the GPU, ascending by process.
  ProcessView& add(const ProcessView& process) { return processes_.emplace_back(process); }
  // Those with the shim, in the same order: each is joined with its process above, or is one that
  // has no context yet.
  void join(std::vector<ProcessView> shim);
  // The tenants of all these processes, as the tree of tenants lets each have its part of this GPU.
  // Tokens are those in `region`.
  void add_tenants(uint32_t gpu, const Tenants& tenants, const Region& region,
                   const ShimProcesses* shims);

  // The jobs on the GPU, which stay the caller's until the snapshot is no longer used, and which of
  // them a process is of. One that waits for its turn keeps no context busy and has work all the
  // same; so its tenant has its part, and the job the weight of that.
  void set_jobs(std::span<JobView> jobs, const std::function<uint64_t(const ProcessId&)>& job_of);

  // Those of which `is_held` says so wait for a turn that no policy gives.
  void set_held(const std::function<bool(const ProcessId&)>& is_held);

  // Valid until the next change.
  Snapshot snapshot(Time now, const GpuView& gpu) const {
    return {.now = now, .tenants = tenants_, .processes = processes_, .gpu = gpu, .jobs = jobs_};
  }
  std::span<const ProcessView> processes() const { return processes_; }
  // What is left to a tenant of its cap; nullptr: it has none, or nothing here. Valid until the
  // next change.
  const CapView* cap_of(uint32_t tenant) const;

 private:
  void take_tree(const Tenants& tenants, uint32_t gpu);
  void lay_tree_flat();
  const TenantView* tenant_of(uint32_t id) const;

  std::vector<TenantView> tenants_;
  std::vector<TreeTenant> tree_;  // empty: all are at the top
  std::vector<ProcessView> processes_, joined_;
  std::span<const JobView> jobs_{};
};

// The cap that holds a tenant back most now, of its own and of those above it, and what is left of
// that one; none: there is no cap. REQUIRES: `slot` is in use.
std::optional<CapView> cap_view(const Tenants& tenants, uint32_t slot, uint32_t gpu,
                                const Region& region);

}  // namespace gpushare
