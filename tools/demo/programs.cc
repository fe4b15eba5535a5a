// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/programs.h"

#include <fmt/format.h>

#include <cmath>

#include "shmctl/plane/status_json.h"

namespace gpushare {
namespace {

double seconds_of(Nanos duration) { return std::chrono::duration<double>(duration).count(); }

std::string cap_value(const DemoClaim& claim) {
  return claim.cap < 1 ? fmt::format("{}%", std::lround(claim.cap * 100)) : "max";
}

}  // namespace

const std::array<DemoProgram, kDemoPrograms>& demo_programs() {
  static const std::array<DemoProgram, kDemoPrograms> programs{{
      {.tenant = "gold", .program = "spin", .claim = {.weight = 300}},
      {.tenant = "silver",
       .program = "spin",
       .claim = {.weight = 100},
       .arguments = {"--kernel-us-min", "100", "--kernel-us-max", "5000"}},
      {.tenant = "capped",
       .program = "spin",
       .claim = {.weight = 300, .cap = 0.2},
       .arguments = {"--kernel-us", "20000", "--depth", "2"}},
      {.tenant = "batch", .program = "endless", .claim = {.priority = Priority::kIdle}},
      {.tenant = "service",
       .program = "periodic",
       .claim = {.priority = Priority::kHigh},
       .is_saturating = false,
       .arguments = {"--kernel-us", "100", "--period-us",
                     std::to_string(kDemoRequestPeriod.count())}},
  }};
  return programs;
}

std::string setting_text(const DemoClaim& claim) {
  if (claim.priority != Priority::kNormal)
    return fmt::format("priority {}", priority_text(claim.priority));
  const std::string weight = fmt::format("weight {}", claim.weight);
  return claim.cap < 1 ? weight + ", max " + cap_value(claim) : weight;
}

std::string demo_config() {
  std::string text;
  for (const DemoProgram& program : demo_programs())
    text += fmt::format("[tenant.{}]\nweight = {}\nmax = \"{}\"\npriority = \"{}\"\n\n",
                        program.tenant, program.claim.weight, cap_value(program.claim),
                        priority_text(program.claim.priority));
  return text;
}

std::vector<std::string> demo_arguments(const DemoProgram& program, const DemoSchedule& schedule) {
  std::vector<std::string> arguments = program.arguments;
  const auto add = [&](const char* name, const std::string& value) {
    arguments.emplace_back(name);
    arguments.push_back(value);
  };
  const Nanos length = schedule.warm_up + schedule.measured + schedule.rest;
  add("--start-at", std::to_string(schedule.start_at.time_since_epoch().count()));
  if (program.program != "endless")  // counts its turns itself, in a unit of its own
    add("--ns-per-unit", fmt::format("{:.4f}", schedule.ns_per_unit));
  if (!program.is_saturating) {
    add("--samples", std::to_string(length / kDemoRequestPeriod));
    return arguments;
  }
  add("--seconds", fmt::format("{:.3f}", seconds_of(length)));
  add("--measure-from", fmt::format("{:.3f}", seconds_of(schedule.warm_up)));
  add("--measure-to", fmt::format("{:.3f}", seconds_of(schedule.warm_up + schedule.measured)));
  return arguments;
}

std::vector<std::string> demo_arguments_alone(const DemoProgram& service, unsigned samples) {
  std::vector<std::string> arguments = service.arguments;
  arguments.insert(arguments.end(), {"--samples", std::to_string(samples)});
  return arguments;
}

}  // namespace gpushare
