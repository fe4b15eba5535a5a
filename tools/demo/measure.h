// SPDX-License-Identifier: Apache-2.0
// Who got how much of the GPU between two looks at the control plane. Pure.
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

// Of GPU `gpu`. Error: a tenant of the demo is not in the snapshot.
Result<DemoReading> read_demo(const PlaneSnapshot& snapshot, uint32_t gpu);

// Parts of the GPU, 0..1.
struct DemoShares {
  std::vector<double> target, measured;  // by program
  double switches_per_s = 0;
  double switching = 0;
};

// Error: the agent did not count through, because it stopped or was started again.
Result<DemoShares> compare_readings(const DemoReading& from, const DemoReading& to);

}  // namespace gpushare
