// SPDX-License-Identifier: Apache-2.0
// How much the recognition of iterations adds to a launch: the time per event over modelled
// programs (tests/intercept/shim/iterations/iteration_programs.h), with the cold start. The
// baseline `feeding nothing` walks through the same events without the recogniser.
#include <benchmark/benchmark.h>

#include <memory>

#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {
namespace {

void recognise(benchmark::State& state, const Program& program) {
  const auto events = program.record(1);
  const auto recogniser = std::make_unique<IterationRecogniser>();
  for (auto _ : state) {
    *recogniser = IterationRecogniser();
    for (const ProgramEvent& event : events) benchmark::DoNotOptimize(feed(*recogniser, event));
  }
  state.counters["per_event"] = benchmark::Counter(
      static_cast<double>(events.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
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
  state.counters["per_event"] = benchmark::Counter(
      static_cast<double>(events.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
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
