// SPDX-License-Identifier: Apache-2.0
// Lists the programs of the demo and the settings of their tenants once: the agent's configuration,
// the command lines, the targets and the tables all follow from this list. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"
#include "tools/demo/targets.h"

namespace gpushare {

struct DemoProgram {
  std::string_view tenant;
  std::string_view program;  // in bin/workloads
  DemoClaim claim;
  bool is_saturating = true;
  std::vector<std::string> arguments{};  // what kind of work, not how long
};

inline constexpr size_t kDemoPrograms = 5;
inline constexpr size_t kDemoService = 4;  // the periodic one
inline constexpr Micros kDemoRequestPeriod{5000};
const std::array<DemoProgram, kDemoPrograms>& demo_programs();

// "weight 300, max 20%"
std::string setting_text(const DemoClaim& claim);

// gpushared's configuration with a tenant for each program.
std::string demo_config();

// How long all programs work, from `start_at` (CLOCK_MONOTONIC) on.
struct DemoSchedule {
  Time start_at{};
  Nanos warm_up{}, measured{};
  Nanos rest{};        // after what is measured, so that no program ends early
  double ns_per_unit;  // length of a unit of work on this GPU when alone
};
std::vector<std::string> demo_arguments(const DemoProgram& program, const DemoSchedule& schedule);

// The arguments of the service when it runs by itself and makes `samples` requests.
std::vector<std::string> demo_arguments_alone(const DemoProgram& service, unsigned samples);

}  // namespace gpushare
