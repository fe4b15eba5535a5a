// SPDX-License-Identifier: Apache-2.0
// Weights: programs that want all of the GPU get shares in proportion, and lose nothing in sum.
#include <fmt/format.h>

#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/race.h"

namespace gpushare::bench {
namespace {

constexpr double kPoint = 0.01;
constexpr double kLeastTotal = 0.97;  // the least part of the total of native time slicing

std::string tenant_name(size_t i) { return fmt::format("t{}", i); }

std::string weighted_tenants(const std::vector<double>& weights) {
  std::string toml;
  for (size_t i = 0; i < weights.size(); ++i)
    toml += fmt::format("[tenant.{}]\nweight = {}\n", tenant_name(i), weights[i]);
  return toml;
}

void judge(Report& report, const RaceResult& native, const RaceResult& ours,
           const std::vector<double>& weights) {
  report.numbers().add("native", native.record()).add("ours", ours.record());
  const std::vector<double> target = parts_of_sum(weights);
  report.must("shares by progress", percents(target) + " +- 1", percents(native.shares()),
              percents(ours.shares()), worst_error(ours.shares(), target) <= kPoint);
  report.must("shares by the log", percents(target) + " +- 1", "-", percents(ours.log_parts()),
              worst_error(ours.log_parts(), target) <= kPoint);
  const double ratio = ours.total() / native.total();
  report.must("total", ">= 97 % of native", fmt::format("{:.1f} units/ms", native.total()),
              percent(ratio), ratio >= kLeastTotal);
}

// Natively, and under an agent with this configuration.
void compare(Stage& stage, Report& report, const std::vector<Runner>& runners,
             const std::string& tenants, const std::vector<double>& weights) {
  const RaceResult native = race(stage, runners);
  const RaceResult ours = race_under_agent(stage, runners, tenants);
  judge(report, native, ours, weights);
}

void run_weights(Stage& stage, Report& report, const std::vector<double>& weights,
                 const std::vector<std::string>& arguments) {
  std::vector<Runner> runners;
  for (size_t i = 0; i < weights.size(); ++i) {
    runners.push_back({.arguments = arguments, .tenant = tenant_name(i)});
    runners.back().arguments.insert(runners.back().arguments.end(),
                                    {"--seed", std::to_string(i + 1)});
  }
  compare(stage, report, runners, weighted_tenants(weights), weights);
}

void shares_30_70(Stage& stage, Report& report) {
  run_weights(stage, report, {30, 70}, stage.spin_arguments(2000));
}

void shares_1_2_3_4(Stage& stage, Report& report) {
  run_weights(stage, report, {100, 200, 300, 400}, stage.spin_arguments(2000));
}

std::vector<std::string> mixed(Stage& stage) {
  std::vector<std::string> arguments = stage.spin_arguments(2000);
  arguments.insert(arguments.end(), {"--kernel-us-min", "50", "--kernel-us-max", "50000"});
  return arguments;
}

void shares_mixed_2(Stage& stage, Report& report) {
  run_weights(stage, report, {30, 70}, mixed(stage));
}

void shares_mixed_4(Stage& stage, Report& report) {
  run_weights(stage, report, {100, 200, 300, 400}, mixed(stage));
}

void late_attach(Stage& stage, Report& report) {
  const std::vector<double> weights{30, 70};
  std::vector<Runner> runners;
  for (size_t i = 0; i < weights.size(); ++i)
    runners.push_back({.arguments = stage.spin_arguments(2000), .tenant = tenant_name(i)});
  const RaceResult native = race(stage, runners);
  const RaceResult ours = race_before_agent(stage, runners, weighted_tenants(weights));
  judge(report, native, ours, weights);
}

// Two departments of which one has two projects: a half of three quarters is not a third.
void shares_tree(Stage& stage, Report& report) {
  const std::vector<std::string> tenants{"a/x", "a/y", "b/z"};
  std::vector<Runner> runners;
  for (const std::string& tenant : tenants)
    runners.push_back({.arguments = stage.spin_arguments(2000), .tenant = tenant});
  compare(
      stage, report, runners,
      "[tenant.a]\nweight = 300\n[tenant.\"a/x\"]\nweight = 100\n[tenant.\"a/y\"]\nweight = 300\n"
      "[tenant.b]\nweight = 100\n[tenant.\"b/z\"]\nweight = 900\n",
      {0.75 * 0.25, 0.75 * 0.75, 0.25});
}

constexpr Scenario kScenarios[] = {
    {"shares-30-70", "two saturating programs, 2 ms kernels, weights 30 and 70", shares_30_70},
    {"shares-1-2-3-4", "four saturating programs, 2 ms kernels", shares_1_2_3_4},
    {"shares-mixed-2", "two, kernels of 50 us to 50 ms, weights 30 and 70", shares_mixed_2},
    {"shares-mixed-4", "four, kernels of 50 us to 50 ms, weights 1:2:3:4", shares_mixed_4},
    {"shares-tree", "departments of 3:1, projects of 1:3 in the first", shares_tree},
    {"late-attach", "weights 30 and 70 on programs that started before the agent", late_attach},
};

}  // namespace

std::span<const Scenario> share_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
