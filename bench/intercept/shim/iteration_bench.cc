// SPDX-License-Identifier: Apache-2.0
// What recognising iterations adds to a launch: time per event, over modelled programs
// (tests/intercept/shim/iterations/iteration_programs.h), with the cold start. `feeding nothing`
// walks through the same events without the recogniser.
#include <benchmark/benchmark.h>

#include <memory>

#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {
namespace {

// Reports the time per event, of which each iteration of the benchmark has so many.
void count_per_event(benchmark::State& state, std::size_t events) {
  state.counters["per_event"] = benchmark::Counter(
      static_cast<double>(events),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void recognise(benchmark::State& state, const Program& program) {
  const auto events = program.record(1);
  const auto recogniser = std::make_unique<IterationRecogniser>();
  for (auto _ : state) {
    *recogniser = IterationRecogniser();
    for (const ProgramEvent& event : events) benchmark::DoNotOptimize(feed(*recogniser, event));
  }
  count_per_event(state, events.size());
}

void walk(benchmark::State& state) {
  const auto events = iterating_programs()[0].record(1);
  for (auto _ : state) {
    uint64_t sum = 0;
    for (const ProgramEvent& event : events) {
      benchmark::DoNotOptimize(event);
      sum += event.function;
    }
    benchmark::DoNotOptimize(sum);
  }
  count_per_event(state, events.size());
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("feeding nothing", walk)->Unit(benchmark::kMillisecond);
  for (const auto programs : {iterating_programs(), aimless_programs()})
    for (const Program& program : programs)
      benchmark::RegisterBenchmark(program.name, recognise, program)->Unit(benchmark::kMillisecond);
  return 0;
}();

}  // namespace
}  // namespace gpushare::shim
