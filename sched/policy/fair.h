// SPDX-License-Identifier: Apache-2.0
// `fair`: weights, caps and strict priority classes by hardware time slices and as few freezes as
// possible. Called by the agent for one GPU; pure but for its own memory; never blocks, never
// throws.
//
// Foreground. The highest class that wants the GPU (with `idle` counting only when nobody of a
// higher class has a context at all) shares by weight: the GPU is divided among tenants, a tenant's
// part equally among its active processes; capped ones take at most their cap and the rest goes to
// the others by weight. Slices are share * round; the round is 20 ms (the options say), longer only
// where the smallest slice would fall below 1 ms, at most 1 s or 1 ms for each. Measured use
// corrects them: sched/policy/slice_feedback.h. A cap beside others is thus kept by slices; the
// bucket behind it freezes only what overdraws (sched/policy/cap_gate.h), for instance a program
// that is alone.
//   weights 300 and 100; the first has two processes -> 0.375 0.375 0.25 -> 7.5, 7.5 and 5 ms
//
// Background. All lower classes run with 1 us slices, one process at a time
// (sched/policy/background_turns.h): what the foreground leaves, at no cost to it but 0.2 ms when
// it comes back.
//
// What `high` means beside `normal`: the same. While a high process wants the GPU (and 2 s longer,
// so that pauses between requests do not count), normal processes are background. The choice was
// between that and short slices for them. On the simulated GPU, a 100 us kernel every 5 ms as the
// high program beside three endless normal ones:
//                                latency p50 / p99      GPU time left to the normals
//   background (this)            303 / 303 us           91.7 %
//   1 ms slices, all running     2526 / 2526 us         79.6 %
// and a saturating high program, which keeps everything here, gets 83.7 % beside three 1 ms slices.
// The price: while a high program is active, normal ones wait for each other's turns of 50 ms.
#pragma once

#include <vector>

#include "sched/policy/background_turns.h"
#include "sched/policy/cap_gate.h"
#include "sched/policy/policy.h"
#include "sched/policy/slice_feedback.h"

namespace gpushare {

class FairPolicy final : public Policy {
 public:
  explicit FairPolicy(const PolicyOptions& options);

  const char* name() const override { return "fair"; }
  Plan plan(const Snapshot& snapshot) override;

 private:
  enum class Place : uint8_t { kForeground, kBackground, kFrozenByUser };

  // One process on its way through plan().
  struct Job {
    const ProcessView* view;
    const TenantView* tenant;
    Place place = Place::kForeground;
    bool is_active = false;  // wants the GPU and nobody but a cap or a turn keeps it from it
    bool is_capped_out = false;
    double target = -1;
    double slice_us = 0;
    FreezeReason freeze = FreezeReason::kNone;
  };

  // The steps of plan(), in order; each fills in what its name says.
  void collect(const Snapshot& snapshot);
  void apply_caps(Time now, Plan& plan);
  void place_classes(Time now, Plan& plan);
  void divide_foreground();
  void correct(Time now, Plan& plan);
  void cut_slices();
  void keep_lone_slice();
  void run_background(Time now, Plan& plan);

  void set_background_targets(std::span<const BackgroundTurns::Candidate> candidates);
  double target_round_us() const;

  PolicyOptions options_;
  CapGate tenant_gate_, process_gate_;
  BackgroundTurns turns_;
  SliceFeedback feedback_;
  Time high_until_{};  // when the last high process that wanted the GPU counts no longer

  uint64_t call_ = 0;
  std::vector<uint64_t> last_seen_;  // by process slot: the last call that listed it

  // Of the present call only; members to keep their memory.
  std::vector<const TenantView*> tenants_;  // by slot
  std::vector<Job> jobs_;                   // by process id
  std::vector<Job*> active_;                // those in the foreground that want it, by tenant
  double active_weight_ = 0;                // of their tenants
};

}  // namespace gpushare
