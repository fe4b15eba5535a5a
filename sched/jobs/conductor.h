// SPDX-License-Identifier: Apache-2.0
// Conductor: carries out what the plans of all GPUs say of jobs: who is to stop, and who is let in
// when the last one stands. Pure; time is given. One thread.
//
// Each plan lists its GPU's jobs in order, and how many of them run; who runs follows from all of
// these lists and from who wants the GPU (who_runs.h). Who has the turn and wants nothing so lends
// it, and gets it back at the next boundary of who has borrowed it. Where nobody wants the GPU, who
// has the turn by the plan keeps it.
// A job is let in when fewer jobs than that still occupy each of its GPUs. One that has a gate or a
// boundary to wait at, so that it begins with a launch, also comes in when the last one is about to
// stand.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sched/jobs/gaps.h"
#include "sched/jobs/job_order.h"
#include "sched/jobs/job_turn.h"
#include "sched/jobs/who_runs.h"

namespace gpushare {

class Conductor {
 public:
  // A job as it is now.
  struct Job {
    uint64_t id = 0;
    uint64_t gpus = 1;  // bit n: it works on GPU n
    Priority priority = Priority::kNormal;
    std::vector<ProcessLook> processes;  // ascending
  };

  // From now on. Jobs that it does not name are left alone on its GPU; on one that has none nobody
  // is held.
  void set_order(JobOrder order);
  void drop_order(uint32_t gpu);
  bool has_orders() const { return !orders_.empty(); }
  // Ascending by GPU. Valid until one is set or dropped.
  std::span<const JobOrder> orders() const { return orders_; }
  // nullptr: this GPU has none.
  const JobOrder* order(uint32_t gpu) const;

  // Looks at all jobs that there are, ascending by id. Jobs that are missing have ended.
  void look(Time now, std::vector<Job> jobs);
  // Then decides by what was seen. Returns true if a job was let in.
  bool decide(Time now);

  // nullptr: there is no such job.
  const JobTurn* find(uint64_t job) const;
  // Of a job, as JobTurn::take_turns(); 0: there is no such job.
  uint64_t take_turns(uint64_t job);
  // As of the last decide(), ascending by process.
  std::vector<ProcessHold> holds() const;
  // When the next look is due.
  Time next(Time now) const;
  // Hand-overs on a GPU.
  const Gaps& gaps(uint32_t gpu) const;

 private:
  struct Handover {  // on one GPU
    uint64_t last = 0, next = 0;
    Time since{};  // the next one has waited
    Time stood{};  // the last one; zero: not yet
  };

  std::vector<uint64_t> choose(Time now) const;
  Nanos grace_of(uint64_t job) const;
  bool is_named(uint64_t job) const;
  bool may_enter(const Job& job, Time now) const;
  bool has_turn(const Job& job) const;
  // Looks so far apart, for so long after a hand-over, see when the next job's first iteration
  // begins, if they take at least as long as two looks are apart.
  static constexpr Nanos kGapLook = std::chrono::milliseconds(1);
  static constexpr Nanos kGapLooks = std::chrono::milliseconds(20);
  bool is_gap_due(Time now) const;
  void let_in(const Job& job, JobTurn& turn, Time now);
  void note_gaps();

  std::vector<JobOrder> orders_;  // ascending by GPU
  std::map<uint64_t, JobTurn> turns_;
  std::vector<Job> jobs_;
  std::map<uint32_t, Handover> handovers_;
  std::map<uint32_t, Gaps> gaps_;
};

}  // namespace gpushare
