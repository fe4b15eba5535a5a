// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy is: a pure function of what is known now (Snapshot) and its own small
// state, to what should be (Plan). No I/O, no clock, no driver; the agent carries a plan out
// through the enforcer. One Policy object per GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// A cap and the state of its token bucket on this GPU.
struct CapView {
  double fraction = 1;  // quota / period: tokens that come back, in GPU ns per ns
  Nanos period{100'000'000};
  Nanos burst{};   // most tokens the bucket can hold
  Nanos tokens{};  // now; negative: overdrawn
};

// One tenant as the policy sees it, on one GPU.
struct TenantView {
  uint32_t id = 0;  // slot in the control plane (< kMaxTenants); unique in a snapshot
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  std::optional<CapView> cap;
  bool is_frozen_by_user = false;
};

// One process with a compute channel group on this GPU.
struct ProcessView {
  uint32_t id = 0;         // slot in the control plane (< kMaxProcesses); unique in a snapshot
  uint32_t tenant = 0;     // TenantView::id
  bool wants_gpu = true;   // has or had work lately; while frozen: as it was before
  bool is_frozen = false;  // as enforced now
  bool is_frozen_by_user = false;
  bool can_control = true;     // false: observe only, the plan must not name it
  Micros slice{2048};          // as enforced now
  double share = -1;           // measured over the accounting window; < 0 unknown
  Nanos used{};                // GPU time charged since the last call
  uint32_t turns = 0;          // times it was switched in since the last call
  std::optional<CapView> cap;  // its own, besides its tenant's
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
  double target = -1;  // share of this GPU it should get while the present set is active; < 0 none

  bool operator==(const Decision&) const = default;
};

// Carried out in this order: freezes, then slices, then thaws. A process whose `freeze` is kNone
// and that is frozen gets thawed.
struct Plan {
  std::vector<Decision> decisions;  // by process id; at most one each, only controllable ones
  // When the policy must run again even if nothing happens (a bucket refills, a turn ends).
  Time next{Time::max()};
  bool needs_fast_tick = false;  // turns of background work are contended: tick every 2 ms
};

struct PolicyOptions {
  Micros min_slice{1'000};  // none shorter, except the 1 us of best-effort work
  Nanos round_target{20'000'000};
  Nanos idle_turn{50'000'000};  // GPU time one best-effort process gets before the next
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const char* name() const = 0;
  // Deterministic: the same sequence of snapshots gives the same plans. Never throws. O(n log n).
  virtual Plan plan(const Snapshot& snapshot) = 0;
};

}  // namespace gpushare
