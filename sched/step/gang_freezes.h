// SPDX-License-Identifier: Apache-2.0
// GangFreezes: jobs that work on several GPUs, which share these by slices, have turns (GangTurns):
// who they are is gathered from the views of all GPUs, and who is not to run now is frozen. Part of
// the scheduler, whose step calls it, on its one thread.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "sched/jobs/gang_turns.h"
#include "sched/step/charging.h"
#include "sched/step/state.h"
#include "sched/step/views.h"

namespace gpushare {

class GangFreezes {
 public:
  GangFreezes(const State& state, const Charging& charging) : state_(state), charging_(charging) {}

  struct OnGpu {
    uint32_t gpu = 0;
    bool is_sliced = true;  // false: the policy orders jobs, or the GPU is shared in space
    Views* views = nullptr;
  };
  // All GPUs of the step, viewed and not planned for yet; `is_auto`: also jobs whose tenants do not
  // say that they are gangs may be. Marks those that are held in the views. On one GPU there is
  // none.
  void look(Time now, std::span<const OnGpu> gpus, bool is_auto);
  // Freezes in the plan of the GPU who is held there; a freeze by the user or for a cap stays what
  // it is. `by_slot`: whose decision it is.
  using Entry = std::map<MemberKey, Member>::value_type;
  void freeze(uint32_t gpu, Plan& plan, std::span<Entry* const> by_slot) const;

  const GangTurns& turns() const { return turns_; }

 private:
  void see(const OnGpu& on, bool is_auto, Time now);

  const State& state_;
  const Charging& charging_;
  GangTurns turns_;
  std::vector<GangTurns::Seen> seen_;  // used again from step to step
};

}  // namespace gpushare
