// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy is: a pure function of what is known now (Snapshot) and its own small
// state, to what should be (Plan). No I/O, no clock, no driver; the agent carries a plan out through
// the enforcer. Per GPU: the agent calls the policy once for every GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/layout.h"

namespace gpushare {

// One tenant as the policy sees it, on one GPU.
struct TenantView {
  uint32_t id = 0;  // slot in the control plane; names the tenant in this snapshot
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  bool has_cap = false;
  double cap_fraction = 1;  // quota / period; only with has_cap
  Nanos period{100'000'000};
  Nanos tokens{};           // of its bucket on this GPU; negative: overdrawn
  bool is_frozen_by_user = false;
};

// One process with a compute channel group on this GPU.
struct ProcessView {
  uint32_t id = 0;         // slot in the control plane
  uint32_t tenant = 0;     // TenantView::id
  bool wants_gpu = true;   // has or had work lately (accounting's best knowledge)
  bool is_frozen = false;  // as enforced now
  bool is_frozen_by_user = false;
  bool can_control = true;  // false: observe only, the plan must not name it
  Micros slice{2048};      // as enforced now
  double share = -1;       // measured over the accounting window; < 0 unknown
  Nanos used{};            // GPU time charged since the last call
  bool has_cap = false;    // its own cap, besides its tenant's
  Nanos tokens{};          // of its own bucket
};

struct Snapshot {
  Time now{};
  std::span<const TenantView> tenants;
  std::span<const ProcessView> processes;
};

enum class FreezeReason : uint8_t { kNone, kCap, kTurn, kUser };

struct Decision {
  uint32_t process = 0;  // ProcessView::id
  Micros slice{0};
  FreezeReason freeze = FreezeReason::kNone;
  double target = -1;    // share of this GPU it should get while the present set is active; < 0 none
};

struct Plan {
  std::vector<Decision> decisions;  // at most one per process, only controllable ones
  // When the policy must run again even if nothing happens (a bucket refills, a turn ends).
  Time next{Time::max()};
  bool needs_fast_tick = false;  // caps or idle-class turns are active: tick every 2 ms
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const char* name() const = 0;
  // Deterministic: the same sequence of snapshots gives the same plans. Never throws. O(n log n).
  virtual Plan plan(const Snapshot& snapshot) = 0;
};

}  // namespace gpushare
