// SPDX-License-Identifier: Apache-2.0
// What a policy that orders jobs decides of single processes: those whose bucket is overdrawn are
// frozen, as under `fair`, and all have the time slice that CUDA programs choose, also those that
// `fair` had cut, or whose programs chose longer ones.
// Pure but for the gates' memory; one thread.
#pragma once

#include <vector>

#include "sched/policy/cap_gate.h"

namespace gpushare {

class JobCaps {
 public:
  JobCaps();
  // Adds a decision for each process that may be controlled, and says when buckets must be looked
  // at again.
  void decide(const Snapshot& snapshot, Plan& plan);
  // Whether a process of the job could run, by the last decide(). True for a job of whose processes
  // the snapshot knows nothing.
  bool may_run(uint64_t job) const;

 private:
  CapGate tenants_, processes_;
  std::vector<uint64_t> able_, stopped_;  // jobs, ascending: with a process that may run; that not
};

}  // namespace gpushare
