// SPDX-License-Identifier: Apache-2.0
// `fair`: weights, caps and strict priority classes by hardware time slices and as few freezes as
// possible; on a GPU that is shared spatially also partitions by sm_percent. It is called by the
// scheduler for one GPU, on the agent's thread, and never blocks or throws.
//
// Foreground. The highest class that has a process on the GPU, at work or not, shares it by weight:
// the GPU is divided among tenants, and a tenant's part equally among its active processes; a
// capped tenant takes at most its cap, which is a part of all time, while what there is to divide
// is less by what changing contexts takes. A slice is share * round. Background. All lower classes
// run with slices of 1 us, one process at a time (background_turns.h). docs/writing_a_policy.md
// says why.
//   weights 300 and 100; the first has two processes -> 0.375 0.375 0.25 -> 7.5, 7.5 and 5 ms
#pragma once

#include <array>
#include <vector>

#include "sched/policy/background_turns.h"
#include "sched/policy/cap_gate.h"
#include "sched/policy/entry.h"
#include "sched/policy/policy.h"
#include "sched/policy/slice_feedback.h"

namespace gpushare {

// Of every policy that shares time as this one.
inline constexpr std::array<PolicyOption, 3> kTimeOptions = {{
    {"round_target_ms", 2, 1'000, 20, "time in which everyone who waits gets one turn"},
    {"min_slice_us", 200, 50'000, 1'000, "shortest turn; every switch costs about 80 us"},
    {"idle_turn_ms", 10, 10'000, 50, "how long one best-effort program keeps what is left"},
}};
inline constexpr std::array<PolicyOption, 4> kFairOptions = {{
    kTimeOptions[0],
    kTimeOptions[1],
    kTimeOptions[2],
    {"lend_after_ms", 4, 60'000, 500,
     "after how long without a launch a tenant lends its SMs; below 500 its next launch wakes the "
     "agent, and waits for them",
     true},
}};

struct FairOptions {
  Micros min_slice{1'000};  // no slice is shorter, but for the 1 us of best-effort work
  Nanos round_target = std::chrono::milliseconds(20);
  Nanos idle_turn = std::chrono::milliseconds(50);  // GPU time of one background turn
  Nanos lend_after = PlannedPartition::kIdleAfter;  // see partitions_by_percent()

  static FairOptions of(const PolicyOptions& options);
};
std::optional<PolicyMistake> check_fair(const PolicyOptions& options);

class FairPolicy final : public Policy {
 public:
  explicit FairPolicy(const FairOptions& options);

  Plan plan(const Snapshot& snapshot) override;

 private:
  enum class Place : uint8_t { kForeground, kBackground, kFrozenByUser };

  // One process on its way through plan().
  struct Job {
    const ProcessView* view;
    const TenantView* tenant;
    Place place = Place::kForeground;
    bool is_active = false;  // it wants the GPU, and nothing but a cap or a turn may stop it
    bool is_capped_out = false;
    double target = -1;  // share of what programs have of the GPU
    double aim = -1;     // the same as a part of all time, where caps make a difference
    double slice_us = 0;
    FreezeReason freeze = FreezeReason::kNone;
  };

  // The steps of plan(), in this order. Each fills in what its name says.
  void collect(const Snapshot& snapshot);
  void apply_caps(Time now, Plan& plan);
  void place_classes();
  void divide_foreground(double switching);
  void divide_among_tenants(double time, double Job::* share);
  void correct(Time now, Plan& plan);
  void cut_slices();
  void keep_lone_slice();
  void run_background(Time now, Plan& plan);

  void set_background_targets(std::span<const BackgroundTurns::Candidate> candidates);
  double target_round_us() const;

  FairOptions options_;
  CapGate tenant_gate_, process_gate_;
  BackgroundTurns turns_;
  SliceFeedback feedback_;

  uint64_t call_ = 0;
  std::vector<uint64_t> last_seen_;  // by process slot: the last call that listed it

  // Of the present call only; members to keep their memory.
  std::vector<const TenantView*> tenants_;  // by slot
  std::vector<Job> jobs_;                   // by process id
  std::vector<Job*> active_;                // in the foreground and active, by tenant
  double active_weight_ = 0;                // of their tenants
};

}  // namespace gpushare
