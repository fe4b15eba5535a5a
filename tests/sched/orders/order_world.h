// SPDX-License-Identifier: Apache-2.0
// One GPU and its jobs in virtual time, for the policies that order jobs: who has the turn runs
// iterations, and one that is to stop does so at its boundary, or after its grace. Nothing is lost
// by switching.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sched/policy/policy.h"
#include "tests/sched/orders/jobs.h"
#include "tests/sched/support/policies.h"

namespace gpushare::test {

class OrderWorld {
 public:
  explicit OrderWorld(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  // Views that the test may change between two steps. `runs`, `since` and `service` are kept here.
  std::vector<JobView> jobs;  // ascending by id
  std::vector<TenantView> tenants;
  std::vector<ProcessView> processes;
  Time now{std::chrono::hours(1)};

  JobView& add(std::optional<Nanos> left = {}, Nanos period = 10ms) {
    jobs.push_back(waiting_job(++last_id_, now, left));
    jobs.back().period = period;
    return jobs.back();
  }
  JobView& job(uint64_t id) { return *std::ranges::find(jobs, id, &JobView::id); }
  void remove(uint64_t id) {
    std::erase_if(jobs, [id](const JobView& one) { return one.id == id; });
    if (running_ == id) running_ = 0;
  }

  // Asks the policy and carries its plan out as far as that can be at this instant.
  const Plan& decide() {
    plan = policy_->plan({.now = now, .tenants = tenants, .processes = processes, .jobs = jobs});
    const uint64_t chosen = job_with_turn(plan);
    if (running_ != 0 && running_ != chosen) {
      const JobView& held = job(running_);
      if (!asked_) asked_ = now;
      const auto decision = std::ranges::find(plan.jobs, running_, &JobDecision::job);
      const bool is_late = now - *asked_ >= decision->grace;
      if (held.is_at_boundary || is_late) stop();
    } else {
      asked_.reset();
    }
    if (running_ == 0 && chosen != 0) {
      running_ = chosen;
      job(chosen).runs = true;
      job(chosen).since = now;
    }
    return plan;
  }

  // Who has the turn runs for so long; it stands at a boundary when its service is a whole number
  // of iterations. A job whose length is told has less left.
  void run(Nanos time) {
    now += time;
    if (running_ == 0) return;
    JobView& one = job(running_);
    if (!one.wants_gpu) return;
    one.service += time;
    if (one.left) one.left = std::max(*one.left - time, Nanos{});
    const Nanos period = std::max(one.period, Nanos(1));
    one.is_at_boundary = one.service % period < time;
  }

  // Steps of 5 ms. Jobs of which nothing is left go.
  void run_for(Nanos time) {
    for (const Time end = now + time; now < end;) {
      decide();
      run(5ms);
      std::vector<uint64_t> over;
      for (const JobView& one : jobs)
        if (one.left && *one.left <= Nanos{} && one.left_source != LeftSource::kUnknown)
          over.push_back(one.id);
      for (const uint64_t id : over) remove(id), ended.push_back(id);
    }
  }

  uint64_t running() const { return running_; }

  Plan plan;
  std::vector<uint64_t> ended;  // in their order

 private:
  void stop() {
    JobView& held = job(running_);
    held.runs = false;
    held.since = now;
    held.is_at_boundary = true;
    running_ = 0;
    asked_.reset();
  }

  std::unique_ptr<Policy> policy_;
  uint64_t last_id_ = 0, running_ = 0;
  std::optional<Time> asked_;
};

}  // namespace gpushare::test
