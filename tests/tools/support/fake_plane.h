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
  bool has_jobs = false;     // each process is a job that is held
  bool has_waiting = false;  // a run waits for a GPU
  // All of that, and what else only some machines show: no metric is without a sample, each counter
  // rises with the step, and each alert has its reason.
  bool has_all = false;
};

// Returns what an agent would publish at `now`.
PlaneSnapshot fake_snapshot(const FakePlane& fake, Time now);

// What a tenant has that announces its iterations, with a target: on `sms` SMs of its own a target,
// a mean time and a 99th percentile, in us, and so many iterations in 1000 s.
TenantGpuUse use_with_target(SloState state, uint32_t sms, uint32_t slo_us, uint32_t latency_us,
                             uint32_t p99_us, uint32_t iterations_per_ks);

// Writes that where the tools look.
void write_plane(Region& region, const PlaneSnapshot& snapshot);

}  // namespace gpushare
