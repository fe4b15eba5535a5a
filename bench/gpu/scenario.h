// SPDX-License-Identifier: Apache-2.0
// The scenarios of gpu-scenarios, a file for each family. Each one is a straight line: it starts
// programs, measures them, and compares. main() runs them one after the other.
#pragma once

#include <span>

#include "bench/gpu/report.h"
#include "bench/gpu/stage.h"

namespace gpushare::bench {

struct Scenario {
  const char* name;
  const char* what;
  void (*run)(Stage& stage, Report& report);
  uint32_t gpus = 1;            // it is skipped on a machine with fewer
  bool needs_hardware = false;  // it needs what the simulation does not have
};

std::span<const Scenario> share_scenarios();
std::span<const Scenario> cap_scenarios();
std::span<const Scenario> idle_class_scenarios();
std::span<const Scenario> high_class_scenarios();
std::span<const Scenario> cost_scenarios();
std::span<const Scenario> freeze_scenarios();
std::span<const Scenario> two_gpu_scenarios();
std::span<const Scenario> mps_scenarios();
std::span<const Scenario> death_scenarios();
std::span<const Scenario> result_scenarios();

}  // namespace gpushare::bench
