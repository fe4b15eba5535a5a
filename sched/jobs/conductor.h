// SPDX-License-Identifier: Apache-2.0
// Conductor: carries out what the plans of all GPUs say of jobs: who is to stop, and who is let in
// when the last one stands. Pure; time is given. One thread.
//
// Each plan lists its GPU's jobs in order, and how many of them run. From these lists it is chosen
// who runs: on the GPU for which most jobs compete first, the first jobs of the list that want the
// GPU, as many as the plan lets run. A job on several GPUs runs on all of them or on none: it is
// passed over if another one has been chosen for one of them. Who has the turn and wants nothing so
// lends it, and gets it back at the next boundary of who has borrowed it. Where nobody wants the
// GPU, who has the turn by the plan keeps it.
// A job is let in when fewer jobs than that still occupy each of its GPUs. One that has a gate or a
// boundary to wait at, so that it begins with a launch, also comes in when the last one is about to
// stand.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sched/jobs/gaps.h"
#include "sched/jobs/job_turn.h"
#include "sched/policy/job.h"

namespace gpushare {

class Conductor {
 public:
  // A job as it is now.
  struct Job {
    uint64_t id = 0;
    uint64_t gpus = 1;                   // bit n: it works on GPU n
    std::vector<ProcessLook> processes;  // ascending
  };
  // What the plan of one GPU says; jobs that are not named are left alone there.
  struct GpuOrder {
    uint32_t gpu = 0;
    std::vector<JobDecision> jobs;
  };

  // From now on. On a GPU that has none nobody is held.
  void set_order(GpuOrder order);
  void drop_order(uint32_t gpu);
  bool has_orders() const { return !orders_.empty(); }

  // Looks at all jobs that there are, ascending by id. Jobs that are missing have ended.
  void look(Time now, std::vector<Job> jobs);
  // Then decides by what was seen. Returns true if a job was let in.
  bool decide(Time now);

  // nullptr: there is no such job.
  const JobTurn* find(uint64_t job) const;
  // As of the last decide(), ascending by process.
  std::vector<ProcessHold> holds() const;
  // When the next look is due.
  Time next(Time now) const;
  // Hand-overs on a GPU.
  const Gaps& gaps(uint32_t gpu) const;

  // The jobs that are to run, ascending.
  static std::vector<uint64_t> choose(std::span<const GpuOrder> orders, std::span<const Job> jobs,
                                      const std::map<uint64_t, JobTurn>& turns);

 private:
  struct Handover {  // on one GPU
    uint64_t last = 0, next = 0;
    Time since{};  // the next one has waited
    Time stood{};  // the last one; zero: not yet
  };

  Nanos grace_of(uint64_t job) const;
  bool is_named(uint64_t job) const;
  bool may_enter(const Job& job, Time now) const;
  bool has_turn(const Job& job) const;
  void let_in(const Job& job, JobTurn& turn, Time now);
  void note_gaps();

  std::vector<GpuOrder> orders_;  // ascending by GPU
  std::map<uint64_t, JobTurn> turns_;
  std::vector<Job> jobs_;
  std::map<uint32_t, Handover> handovers_;
  std::map<uint32_t, Gaps> gaps_;
};

}  // namespace gpushare
