// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/job_order.h"

#include <algorithm>
#include <utility>

namespace gpushare {

JobOrder::JobOrder(uint32_t gpu, std::vector<JobDecision> jobs)
    : gpu_(gpu), jobs_(std::move(jobs)) {
  by_id_.reserve(jobs_.size());
  for (const JobDecision& decision : jobs_) {
    by_id_.push_back({.job = decision.job, .at = static_cast<uint32_t>(by_id_.size())});
    room_ += decision.runs ? 1 : 0;
  }
  std::ranges::sort(by_id_);
}

uint32_t JobOrder::place(uint64_t job) const {
  const auto found = std::ranges::lower_bound(by_id_, job, {}, &Entry::job);
  return found == by_id_.end() || found->job != job ? 0 : found->at + 1;
}

const JobDecision* JobOrder::find(uint64_t job) const {
  const uint32_t at = place(job);
  return at == 0 ? nullptr : &jobs_[at - 1];
}

}  // namespace gpushare
