// SPDX-License-Identifier: Apache-2.0
// Caps: a saturating program gets its quota and no more, and what it leaves goes to the others.
#include <fmt/format.h>

#include <cmath>

#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/race.h"

namespace gpushare::bench {
namespace {

constexpr double kPoint = 0.01;
// The least part of the rest that the other program gets. The rest is what two programs get in sum
// under native time slicing, less the cap.
constexpr double kLeastOfTheRest = 0.97;

Runner runner(Stage& stage, const std::string& tenant) {
  return {.arguments = stage.spin_arguments(2000), .tenant = tenant};
}

void cap_alone(Stage& stage, Report& report, double cap) {
  const double solo = stage.solo().spin_units_per_ms;
  const RaceResult ours =
      race_under_agent(stage, {runner(stage, "capped")},
                       fmt::format("[tenant.capped]\nmax = \"{:.0f}%\"\n", 100 * cap));
  const double share = ours.rates[0] / solo;
  report.numbers().add("solo_units_per_ms", solo).add("share", share).add("ours", ours.record());
  report.must("share by progress", percent(cap) + " +- 1", "100.0 %", percent(share),
              std::abs(share - cap) <= kPoint);
}

void cap_30(Stage& stage, Report& report) { cap_alone(stage, report, 0.30); }
void cap_10(Stage& stage, Report& report) { cap_alone(stage, report, 0.10); }

void cap_30_beside(Stage& stage, Report& report) {
  constexpr double kCap = 0.30;
  const double solo = stage.solo().spin_units_per_ms;
  const std::vector<Runner> runners{runner(stage, "capped"), runner(stage, "free")};
  const RaceResult native = race(stage, runners);
  const RaceResult ours =
      race_under_agent(stage, runners, "[tenant.capped]\nmax = \"30%\"\n[tenant.free]\n");
  const double capped = ours.rates[0] / solo, rest = ours.rates[1] / solo;
  report.numbers()
      .add("solo_units_per_ms", solo)
      .add("native", native.record())
      .add("ours", ours.record());
  report.must("capped, by progress", percent(kCap) + " +- 1", percent(native.rates[0] / solo),
              percent(capped), std::abs(capped - kCap) <= kPoint);
  report.must("capped, by the log", percent(kCap) + " +- 1", "-", percent(ours.log_shares[0]),
              std::abs(ours.log_shares[0] - kCap) <= kPoint);
  const double left = native.total() / solo - kCap;
  report.must("the other gets the rest", ">= 97 % of " + percent(left),
              percent(native.rates[1] / solo), percent(rest), rest >= kLeastOfTheRest * left);
}

// A department's cap holds for all of its projects together, and these share it by their weights.
void cap_tree(Stage& stage, Report& report) {
  const double solo = stage.solo().spin_units_per_ms;
  const std::vector<Runner> runners{runner(stage, "a/x"), runner(stage, "a/y"), runner(stage, "b")};
  const std::vector<double> due{0.1, 0.3};
  const RaceResult native = race(stage, runners);
  const RaceResult ours =
      race_under_agent(stage, runners,
                       "[tenant.a]\nmax = \"40%\"\nweight = 900\n[tenant.\"a/x\"]\nweight = 100\n"
                       "[tenant.\"a/y\"]\nweight = 300\n[tenant.b]\n");
  report.numbers()
      .add("solo_units_per_ms", solo)
      .add("native", native.record())
      .add("ours", ours.record());
  const std::vector<double> capped{ours.rates[0] / solo, ours.rates[1] / solo};
  report.must("both projects, by progress", percents(due) + " +- 1", "-", percents(capped),
              worst_error(capped, due) <= kPoint);
  const std::vector<double> by_log{ours.log_shares[0], ours.log_shares[1]};
  report.must("both projects, by the log", percents(due) + " +- 1", "-", percents(by_log),
              worst_error(by_log, due) <= kPoint);
  const double left = native.total() / solo - due[0] - due[1];
  const double rest = ours.rates[2] / solo;
  report.must("the other gets the rest", ">= 97 % of " + percent(left),
              percent(native.rates[2] / solo), percent(rest), rest >= kLeastOfTheRest * left);
}

constexpr Scenario kScenarios[] = {
    {"cap-30", "one saturating program, max = 30 %", cap_30},
    {"cap-10", "one saturating program, max = 10 %", cap_10},
    {"cap-30-beside", "max = 30 % beside a program without a cap", cap_30_beside},
    {"cap-tree", "max = 40 % of a department with two projects, beside another", cap_tree},
};

}  // namespace

std::span<const Scenario> cap_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
