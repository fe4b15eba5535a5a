// SPDX-License-Identifier: Apache-2.0
// Freezing: how long the calls take, and that they slow no program but the one that is frozen.
#include <fmt/format.h>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/freezing.h"
#include "tools/agent/client.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;

constexpr double kMostFreezeUs = 600, kMostThawUs = 300;
constexpr double kKept = 0.97;

void freeze_thaw(Stage& stage, Report& report) {
  const auto gpu = stage.open_gpu();
  for (const std::string workload : {"spin", "endless"}) {
    Child& program = stage.start(workload, {"--seconds", "20", "--report-ms", "10"});
    stage.await_output(program);
    const Channels channels = channels_of(*gpu, program.pid());
    const FreezeCycles cycles =
        freeze_cycles(stage, *gpu, channels.gpu, channels.compute, 5ms, 15ms, Stage::now() + 500ms);
    stage.kill_programs();
    const double freeze = median(cycles.freeze_us), thaw = median(cycles.thaw_us);
    report.numbers()
        .add(workload + "_freeze_us", cycles.freeze_us)
        .add(workload + "_thaw_us", cycles.thaw_us)
        .add(workload + "_compute_channels", channels.compute.size());
    report.must(workload + ": freeze, median", "<= 600 us", "-", fmt::format("{:.0f} us", freeze),
                freeze <= kMostFreezeUs);
    report.must(workload + ": thaw, median", "<= 300 us", "-", fmt::format("{:.0f} us", thaw),
                thaw <= kMostThawUs);
  }
}

// Freezes and thaws a program through the agent 25 times a second until then. Returns the part of
// the time for which it was frozen: from the answer to `freeze` to the answer to `thaw`.
double freeze_through_agent(Stage& stage, pid_t pid, Time until) {
  const Time begin = Stage::now();
  Nanos frozen{};
  while (Stage::now() < until) {
    stage.tell("freeze", pid);
    const Time from = Stage::now();
    stage.wait_until(from + 20ms);
    stage.tell("thaw", pid);
    const Time to = Stage::now();
    frozen += to - from;
    stage.wait_until(to + 20ms);
  }
  return std::chrono::duration<double>(frozen) /
         std::chrono::duration<double>(Stage::now() - begin);
}

// What the bystander may expect: its share, by weight, is its rate beside the other program while
// that runs; natively, where nothing can be frozen, it never gets more. At best it also gets the
// other's part while that is frozen. How near it comes to this depends on the turns: the program
// that was thawed has the first turn, so where a thawed time holds only one or two turns of each,
// that program gets the larger part of it.
void bystander(Stage& stage, Report& report, std::string_view config, bool must_reach_best) {
  const double solo = stage.solo().endless_turns_per_ms;
  const double settle = stage.settle_s(), measured = stage.settings().seconds;
  const std::string run_for = fmt::format("{}", settle + 2 * measured + 1);
  stage.start_agent(std::string(config));
  const Time start = stage.instant_for(2);
  const std::vector<std::string> arguments{"--start-at", ns_text(start), "--seconds",
                                           run_for,      "--report-ms",  "5"};
  Child& kept = stage.start("endless", arguments);
  Child& frozen = stage.start("endless", arguments);
  const Time calm = start + seconds(settle), stirred = calm + seconds(measured);
  stage.wait_until(stirred);
  const double fraction = freeze_through_agent(stage, frozen.pid(), stirred + seconds(measured));
  const Time end = Stage::now();
  stage.finish(kept, start);
  stage.finish(frozen, start);
  const double beside = rate_between(kept.output(), "turns", calm, stirred);
  const double while_frozen = rate_between(kept.output(), "turns", stirred, end);
  const double of_frozen = rate_between(frozen.output(), "turns", stirred, end);
  stage.kill_programs();
  stage.stop_agent();
  const double expected = (1 - fraction) * beside + fraction * solo;
  const double ratio = while_frozen / expected;
  report.numbers()
      .add("solo_turns_per_ms", solo)
      .add("beside_turns_per_ms", beside)
      .add("bystander_turns_per_ms", while_frozen)
      .add("frozen_turns_per_ms", of_frozen)
      .add("frozen_fraction", fraction)
      .add("expected_turns_per_ms", expected);
  report.must("bystander, of its share", ">= 97 %", fmt::format("{:.0f}/ms", beside),
              fmt::format("{} ({:.0f}/ms)", percent(while_frozen / beside), while_frozen),
              while_frozen >= kKept * beside);
  report.must("bystander, of the best it could get",
              must_reach_best ? ">= 97 %" : "(for information)", fmt::format("{:.0f}/ms", expected),
              percent(ratio), !must_reach_best || ratio >= kKept);
  report.must("the other one was frozen", "20 to 80 % of the time", "-", percent(fraction),
              fraction > 0.2 && fraction < 0.8 && of_frozen < beside);
}

void bystander_default(Stage& stage, Report& report) { bystander(stage, report, "", false); }

void bystander_short_turns(Stage& stage, Report& report) {
  bystander(stage, report, "[agent]\nround_target_ms = 4\n", true);
}

constexpr Scenario kScenarios[] = {
    {"freeze-thaw", "the calls that freeze and thaw a running program, from outside", freeze_thaw},
    {"bystander", "beside a program that is frozen and thawed 25 times a second",
     bystander_default},
    {"bystander-short-turns", "the same with rounds of 4 ms", bystander_short_turns},
};

}  // namespace

std::span<const Scenario> freeze_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
