// SPDX-License-Identifier: Apache-2.0
// The high class: no request of a service waits for the slices of the programs beside it, however
// long it had none; the first request after a pause counts as the others do.
#include <fmt/format.h>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

constexpr double kMostP999 = 400, kMost = 1000;  // us
constexpr size_t kNeighbours = 2;

struct Requests {
  double period_ms;
  int count;
};
// Without a pause, with short ones, and with pauses in which a service would seem to have gone.
constexpr Requests kRequests[] = {{5, 600}, {100, 80}, {1500, 8}};

struct Outcome {
  std::string service;                           // its last line
  double p999 = 0, longest = 0, neighbours = 0;  // us, us, units of work a ms
};

Outcome play(Stage& stage, const Requests& requests, double kernel_us) {
  const double asking = requests.period_ms * requests.count / 1000;
  const double settle = stage.settle_s();
  const Time start = stage.instant_for(kNeighbours + 1);
  const bool has_agent = stage.has_agent();
  std::vector<Child*> neighbours;
  for (size_t i = 0; i < kNeighbours; ++i) {
    std::vector<std::string> arguments = stage.spin_arguments(kernel_us);
    arguments.insert(arguments.end(), {"--start-at", ns_text(start), "--seconds",
                                       fmt::format("{}", settle + asking)});
    neighbours.push_back(
        &stage.start("spin", arguments, has_agent ? fmt::format("batch{}", i) : ""));
  }
  Child& service =
      stage.start_service(start + seconds(settle), requests.period_ms * 1000, requests.count);
  Outcome outcome;
  outcome.service = stage.finish(service);
  outcome.p999 = number_in(outcome.service, "p999_us").value_or(0);
  outcome.longest = number_in(outcome.service, "max_us").value_or(0);
  for (Child* child : neighbours)
    outcome.neighbours += number_in(stage.finish(*child, start), "units_per_ms").value_or(0);
  stage.kill_programs();
  return outcome;
}

void high_class(Stage& stage, Report& report, double kernel_us) {
  const double solo = stage.solo().spin_units_per_ms;
  std::vector<Outcome> native, ours;
  for (const Requests& requests : kRequests) native.push_back(play(stage, requests, kernel_us));
  stage.start_agent("[tenant.service]\npriority = \"high\"\n[tenant.batch0]\n[tenant.batch1]\n");
  for (const Requests& requests : kRequests) ours.push_back(play(stage, requests, kernel_us));
  stage.stop_agent();

  std::vector<Record> records;
  const auto us = [](double value) { return fmt::format("{:.0f} us", value); };
  for (size_t i = 0; i < std::size(kRequests); ++i) {
    const Outcome &theirs = native[i], &own = ours[i];
    records.push_back(Record()
                          .add("period_ms", kRequests[i].period_ms)
                          .add_json("service_native", theirs.service)
                          .add_json("service_ours", own.service)
                          .add("neighbours_native", theirs.neighbours / solo)
                          .add("neighbours_ours", own.neighbours / solo));
    const std::string what =
        fmt::format("{} requests, {:g} ms apart", kRequests[i].count, kRequests[i].period_ms);
    report.must(what + ": p99.9", "<= 400 us", us(theirs.p999), us(own.p999),
                own.p999 <= kMostP999);
    report.must(what + ": longest", "<= 1000 us", us(theirs.longest), us(own.longest),
                own.longest <= kMost);
    report.must(what + ": the others' work, of alone", "-", percent(theirs.neighbours / solo),
                percent(own.neighbours / solo), true);
  }
  report.numbers().add("requests", records);
}

void beside_short(Stage& stage, Report& report) { high_class(stage, report, 2'000); }
void beside_long(Stage& stage, Report& report) { high_class(stage, report, 20'000); }

constexpr Scenario kScenarios[] = {
    {"high-class-2ms", "requests of 100 us beside two normal programs with kernels of 2 ms",
     beside_short},
    {"high-class-20ms", "requests of 100 us beside two normal programs with kernels of 20 ms",
     beside_long},
};

}  // namespace

std::span<const Scenario> high_class_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
