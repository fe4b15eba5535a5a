// SPDX-License-Identifier: Apache-2.0
// Computes how much of the GPU each program got between two looks at the control plane. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/snapshot.h"
#include "tools/demo/programs.h"

namespace gpushare {

// One look: what the agent had counted at an instant. used_ns[i] is that of demo_programs()[i].
struct DemoReading {
  uint64_t at_ns = 0;  // CLOCK_MONOTONIC
  uint32_t agent_pid = 0;
  uint64_t log_records = 0;
  std::vector<uint64_t> used_ns{};
};

// Reads GPU `gpu`. It fails when a tenant of the demo is not in the snapshot.
Result<DemoReading> read_demo(const PlaneSnapshot& snapshot, uint32_t gpu);

// Parts of the GPU, 0..1.
struct DemoShares {
  std::vector<double> target, measured;  // by program
  double switches_per_s = 0;
  double switching = 0;
};

// It fails when the agent did not count all the time, because it stopped or was started again.
Result<DemoShares> compare_readings(const DemoReading& from, const DemoReading& to);

}  // namespace gpushare
