// SPDX-License-Identifier: Apache-2.0
// One GPU in virtual time, and a policy of the agent that says whose turn it is on it. Jobs run one
// at a time, iteration by iteration; one that is to stop does so at the end of its iteration, or in
// the middle of it after its grace. It is event-driven: the owner advances it to the next instant
// at which something happens on any GPU.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/sched/replay/jobs.h"
#include "sched/orders/length_history.h"
#include "sched/policy/policy.h"

namespace gpushare::replay {

// What is told the agent of a job before it runs.
enum class Told {
  kLength,   // how many iterations it will make
  kCommand,  // its model: other runs of it may have been seen
  kNothing,
};

// What it costs to give the GPU to another job.
struct Costs {
  Nanos gap = std::chrono::microseconds(300);  // from one job's boundary to another's first kernel
  Nanos freeze = std::chrono::microseconds(500);  // to stop a job in mid-kernel
  Nanos thaw = std::chrono::microseconds(260);    // to let it go on
};

struct Outcome {
  std::optional<Time> started{}, ended{};
  uint32_t gpu = 0;
};

class Gpu {
 public:
  // `lengths` is told what ends. All that is handed in outlives this.
  Gpu(uint32_t index, std::unique_ptr<Policy> policy, const Costs& costs, Told told,
      LengthHistory& lengths);

  // At the instant `now`: the next one to which the GPU is advanced. `outcome` is filled in.
  void add(uint64_t id, const Job& job, Time now, Outcome& outcome);
  // When something happens next here; Time::max(): never.
  Time next() const;
  // Up to `now`, which is at most next().
  void advance(Time now);

  // Brings views() up to `now`, at most next().
  void account(Time now);

  bool is_empty() const { return jobs_.empty(); }
  std::span<const JobView> views() const { return views_; }
  uint64_t switches() const { return switches_; }  // from one job to another
  uint64_t stops() const { return stops_; }        // of these in mid-kernel
  Nanos used() const { return used_; }             // with work
  Nanos lost() const { return lost_; }             // by switching
  uint64_t decisions() const { return decisions_; }

 private:
  struct Running {
    const Job* job;
    Outcome* outcome;
    Nanos done{};  // of its length
    bool is_frozen = false;
  };
  // Who has the GPU; from `from` on its kernels run.
  struct Turn {
    size_t place;
    Time from;
    Nanos done;  // when it began
    std::optional<Time> stop{};
    bool is_in_mid_kernel = false;
  };

  void decide(Time now);
  void begin(size_t place, Time now);
  void stop(Time now);
  void end(Time now);
  void ask_to_stop(Time now, Nanos grace);
  Time end_of_turn() const;
  void know_left(size_t place);

  const GpuView view_;
  const std::unique_ptr<Policy> policy_;
  const Costs costs_;
  const Told told_;
  LengthHistory& lengths_;
  std::vector<JobView> views_;  // ascending by id, as is:
  std::vector<Running> jobs_;
  std::optional<Turn> turn_;
  uint64_t last_ = 0;  // the job that ran last
  Nanos owed_{};       // before the next one runs: the last one is being frozen
  Time look_{Time::max()};
  uint64_t switches_ = 0, stops_ = 0, decisions_ = 0;
  Nanos used_{}, lost_{};
};

}  // namespace gpushare::replay
