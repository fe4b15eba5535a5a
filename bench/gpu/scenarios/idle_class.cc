// SPDX-License-Identifier: Apache-2.0
// The idle class: a service with a short kernel at fixed times hardly notices endless programs
// beside it, and they get what it leaves.
#include <fmt/format.h>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

constexpr double kPeriodUs = 5000;
constexpr double kMostP50 = 320, kMostP99 = 350;  // us
constexpr double kLeastOfTheRest = 0.90;

struct Outcome {
  std::string service;               // the service's last line
  double p50 = 0, p99 = 0;           // us
  std::vector<double> turns_per_ms;  // of the endless programs
};

Outcome play(Stage& stage, size_t endless) {
  const Time start = stage.instant_for(endless + 1);
  const double settle = stage.settle_s(), measured = stage.settings().seconds;
  const bool has_agent = stage.has_agent();
  std::vector<Child*> batch;
  for (size_t i = 0; i < endless; ++i)
    batch.push_back(&stage.start(
        "endless",
        {"--start-at", ns_text(start), "--seconds", fmt::format("{}", settle + measured + 0.3),
         "--measure-from", fmt::format("{}", settle), "--measure-to",
         fmt::format("{}", settle + measured)},
        has_agent ? "batch" : ""));
  Child& service =
      stage.start_service(start + seconds(settle), kPeriodUs, measured * 1e6 / kPeriodUs);
  Outcome outcome;
  outcome.service = stage.finish(service);
  outcome.p50 = number_in(outcome.service, "p50_us").value_or(0);
  outcome.p99 = number_in(outcome.service, "p99_us").value_or(0);
  for (Child* child : batch)
    outcome.turns_per_ms.push_back(
        number_in(stage.finish(*child, start), "turns_per_ms").value_or(0));
  stage.kill_programs();
  return outcome;
}

Record record_of(const Outcome& outcome) {
  return Record()
      .add_json("service", outcome.service)
      .add("endless_turns_per_ms", outcome.turns_per_ms);
}

void idle_class(Stage& stage, Report& report, size_t endless) {
  const double solo = stage.solo().endless_turns_per_ms;
  const Outcome alone = play(stage, 0);
  const Outcome native = play(stage, endless);
  stage.start_agent("[tenant.service]\n[tenant.batch]\npriority = \"idle\"\n");
  const Outcome ours = play(stage, endless);
  stage.stop_agent();

  // What the service uses of the GPU is its kernel's length over its period.
  const double left = 1 - number_in(alone.service, "kernel_us").value_or(0) / kPeriodUs;
  const double rest = sum(ours.turns_per_ms) / solo / left;
  const double native_rest = sum(native.turns_per_ms) / solo / left;
  report.numbers()
      .add("solo_turns_per_ms", solo)
      .add("left", left)
      .add("service_alone", record_of(alone))
      .add("native", record_of(native))
      .add("ours", record_of(ours));
  const auto us = [](double value) { return fmt::format("{:.0f} us", value); };
  report.must("latency p50", fmt::format("<= 320 us (alone {:.0f})", alone.p50), us(native.p50),
              us(ours.p50), ours.p50 <= kMostP50);
  report.must("latency p99", fmt::format("<= 350 us (alone {:.0f})", alone.p99), us(native.p99),
              us(ours.p99), ours.p99 <= kMostP99);
  report.must("idle class, of what is left", ">= 90 %", percent(native_rest), percent(rest),
              rest >= kLeastOfTheRest);
}

void idle_class_1(Stage& stage, Report& report) { idle_class(stage, report, 1); }
void idle_class_3(Stage& stage, Report& report) { idle_class(stage, report, 3); }

constexpr Scenario kScenarios[] = {
    {"idle-class-1", "100 us every 5 ms beside one endless idle-class program", idle_class_1},
    {"idle-class-3", "100 us every 5 ms beside three endless idle-class programs", idle_class_3},
};

}  // namespace

std::span<const Scenario> idle_class_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
