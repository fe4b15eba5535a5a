// SPDX-License-Identifier: Apache-2.0
// A made-up state of two GPUs, four tenants and a handful of processes, in every state that there
// is, for looking at the tools without an agent.
#pragma once

#include "shmctl/plane/snapshot.h"

namespace gpushare {

struct FakePlane {
  uint32_t gpus = 1;
  uint32_t processes = 6;
  uint64_t step = 0;  // moves shares and history
  uint32_t agent_pid = 1;
  bool has_targets = false;  // GPU 0 is divided by target times
};

// Returns what an agent would publish at `now`.
PlaneSnapshot fake_snapshot(const FakePlane& fake, Time now);

// Writes that where the tools look.
void write_plane(Region& region, const PlaneSnapshot& snapshot);

}  // namespace gpushare
