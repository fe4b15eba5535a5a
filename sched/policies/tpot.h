// SPDX-License-Identifier: Apache-2.0
// `tpot`: in time as `fair`; in space tokens go first. A tenant that decodes (writes tokens) gets
// the fewest SM groups on which its steps keep their target, a tenant that prefills (reads prompts)
// the rest of them while it has prompts, and all others what both leave. docs/phases.md tells the
// rules, with an example. One object per GPU, on the agent's one thread.
//
//   decode 1:  needs 5 of 16 groups, prefill 2 has the other 11    tokens late on 5 -> 7 and 9
//   tokens late on the most that there are -> 2's next prompt waits at its boundary
//   a prompt has waited for half of its target -> both get equal parts, and nobody waits
#pragma once

#include <map>
#include <vector>

#include "sched/policies/token_times.h"
#include "sched/policies/waiting_prompts.h"
#include "sched/policy/fair.h"

namespace gpushare {

class TpotPolicy final : public Policy {
 public:
  // Who launches nothing for so long lends; who decodes, for two of its steps if that is longer.
  static constexpr Nanos kLendAfter = std::chrono::milliseconds(4);
  // Of a tenant that prefills and has no target: the time to the first token in the published
  // comparisons of this kind of policy (DetShare, arXiv 2603.15042).
  static constexpr Nanos kPromptTarget = std::chrono::seconds(1);
  // Parts of the target of a step: that a size is chosen for, that is late, and that is in time
  // again. And of the target of a prompt: where it no longer gives way, and gives way again.
  static constexpr double kAim = 0.8, kLate = 0.9, kInTime = 0.8, kEvenFrom = 0.5, kEvenTo = 0.4;

  TpotPolicy(const GpuView& gpu, const FairOptions& options)
      : in_time_(options), geometry_(gpu.geometry) {}

  Plan plan(const Snapshot& snapshot) override;

 private:
  struct Known {
    ShimPhase phase = ShimPhase::kUnknown;
    double shown_prefill = 0, shown_decode = 0;  // parts of what its programs showed lately
    uint64_t begun = 0;                          // sum over its processes at the last look
    // Iterations a second; < 0: unknown. Counted anew each second, from `counted_from` on.
    double rate = -1;
    uint64_t counted_from = 0;
    Time counted_since{};
    uint32_t weight = 100;
    uint32_t most = 0;  // groups that it may have
    Nanos target{};     // zero: none
    Time last_launch{};
    bool is_active = false;
    TokenTimes times;
    WaitingPrompts prompts;
    // Of one that decodes.
    uint32_t groups = 0;    // that it is to have while it decodes; 0: not known yet
    uint32_t given = 0;     // that the last plan gave it for that; 0: it did not decode
    double allowed = kAim;  // part of the target that a step may take by the curve
    bool is_late = false;   // on the most groups that there are for it
    // Of the last plan.
    uint32_t planned = 1;
    SloState state = SloState::kNone;
    uint64_t last_step = 0;  // of the policy, in which it was there
  };

  void look(const Snapshot& snapshot);
  void look_at(Known& known, Time now, const TenantView& view,
               std::span<const ProcessView* const> processes);
  void look_what_is_owed(Time now);
  static void count_rate(Known& known, Time now);
  void look_for_even(Time now);
  uint32_t even() const { return (geometry_.groups + 1) / 2; }
  void size(Known& known, uint32_t most) const;
  static uint32_t fewest(const Known& known, double seconds, uint32_t most);
  void divide();
  static void divide_by_weight(uint32_t groups, std::span<Known* const> among);
  std::vector<Known*> of(ShimPhase phase, bool only_active = false);
  void hold(const Snapshot& snapshot, Plan& plan) const;
  static SloStatus status(uint32_t id, const Known& known);

  FairPolicy in_time_;
  const SmGeometry geometry_;
  std::map<uint32_t, Known> tenants_;  // with a process that has the shim
  bool is_even_ = false;               // prompts and tokens get equal parts
  double owed_ = 0;                    // to prompts, in groups times seconds
  Time last_{};                        // instant of the last plan
  bool is_held_ = false;               // prompts wait at their boundary
  uint64_t step_ = 0;
};

}  // namespace gpushare
