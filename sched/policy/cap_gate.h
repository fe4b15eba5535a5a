// SPDX-License-Identifier: Apache-2.0
// When a capped tenant or process may run: it is frozen when its bucket is overdrawn, and thawed
// when there is enough for a useful run. The bucket itself is in the control plane. Pure.
//
// A freeze and its thaw cost about 1 ms of the GPU and of the agent, so the distance between the
// two levels sets the price: two cycles a period for a process that is alone. For 30000 100000 it
// resumes at 10.5 ms, runs 15 ms and rests 35 ms. A window sees at most one such level too much or
// too little: 0.35 % of 3 s.
#pragma once

#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

// Tokens at which a frozen process is thawed: quota * (1 - fraction) / 2, at least 2 ms, never more
// than the bucket holds.
Nanos resume_level(const CapView& cap);

// How long until the bucket, not charged meanwhile, reaches resume_level(); 0 when it has.
Nanos until_resume(const CapView& cap);

// How long until the bucket is empty at the earliest (the GPU all to itself). Nanos::max(): never.
Nanos until_empty(const CapView& cap);

// Of two caps that both hold, the one to which what is said above is to be applied now: the one
// that keeps from running for longer, and where neither does the one that runs dry first.
const CapView& binding(const CapView& one, const CapView& other);

// Whether it must not run now, by whether it was not to run until now.
bool is_shut(const CapView& cap, bool was_shut);

// The hysteresis' memory, by slot.
class CapGate {
 public:
  explicit CapGate(size_t slots) : is_shut_(slots, false) {}

  // Returns true when it is out of tokens and must not run. A slot without a cap is always open.
  bool update(uint32_t slot, const std::optional<CapView>& cap);
  bool is_shut(uint32_t slot) const { return is_shut_[slot]; }

 private:
  std::vector<bool> is_shut_;
};

}  // namespace gpushare
