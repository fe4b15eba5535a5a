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
  stage.start_agent(fmt::format("[tenant.capped]\nmax = \"{:.0f}%\"\n", 100 * cap));
  const RaceResult ours = race(stage, {runner(stage, "capped")});
  stage.stop_agent();
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
  stage.start_agent("[tenant.capped]\nmax = \"30%\"\n[tenant.free]\n");
  const RaceResult ours = race(stage, runners);
  stage.stop_agent();
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

constexpr Scenario kScenarios[] = {
    {"cap-30", "one saturating program, max = 30 %", cap_30},
    {"cap-10", "one saturating program, max = 10 %", cap_10},
    {"cap-30-beside", "max = 30 % beside a program without a cap", cap_30_beside},
};

}  // namespace

std::span<const Scenario> cap_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
