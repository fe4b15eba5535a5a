// SPDX-License-Identifier: Apache-2.0
// JobOrder: what the plan of one GPU says of its jobs, in their order, where each of some thousands
// is found by its number without a search through the list. A plain value; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/policy/job.h"

namespace gpushare {

class JobOrder {
 public:
  // O(n log n). Of a job that is named twice the first word counts.
  JobOrder(uint32_t gpu, std::vector<JobDecision> jobs);

  uint32_t gpu() const { return gpu_; }
  // The first one goes first.
  std::span<const JobDecision> jobs() const { return jobs_; }
  // How many of them run at a time.
  std::size_t room() const { return room_; }

  // O(log n). nullptr: the plan does not name the job.
  const JobDecision* find(uint64_t job) const;
  // Its place in the order, from 1 on; 0: the plan does not name it.
  uint32_t place(uint64_t job) const;

 private:
  struct Entry {
    uint64_t job = 0;
    uint32_t at = 0;  // in jobs_

    auto operator<=>(const Entry&) const = default;
  };

  uint32_t gpu_;
  std::vector<JobDecision> jobs_;
  std::vector<Entry> by_id_;  // ascending by job
  std::size_t room_ = 0;
};

}  // namespace gpushare
