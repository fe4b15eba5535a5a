// SPDX-License-Identifier: Apache-2.0
// iteration_report: how often the recogniser is right about modelled programs, and how long it
// takes for each of their calls, with the cold start. It prints a line of JSON for each program.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tests/intercept/shim/iterations/iteration_score.h"

namespace gpushare::shim {
namespace {

constexpr int kRounds = 9;

// Returns the best of a few rounds, which is the least disturbed one.
double ns_per_call(const std::vector<ProgramEvent>& events) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto recogniser = std::make_unique<IterationRecogniser>();
    const auto begin = std::chrono::steady_clock::now();
    for (const ProgramEvent& event : events) feed(*recogniser, event);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / static_cast<double>(events.size()));
  }
  return best;
}

void report(const Program& program, bool has_iterations) {
  Score score;
  for (uint64_t seed = kFirstSeed; seed <= kLastSeed; ++seed) add(score, program, seed);
  std::string text = fmt::format(
      "{{\"program\":\"{}\",\"has_iterations\":{},\"right\":{},\"missed\":{},\"invented\":{}",
      program.name, has_iterations, score.right, score.missed, score.invented);
  if (has_iterations) text += fmt::format(",\"accuracy\":{:.4f}", score.accuracy());
  if (score.phases != 0)
    text += fmt::format(",\"phases_known\":{:.4f},\"phases_wrong\":{}", score.known(),
                        score.wrong_phases);
  fmt::print("{},\"ns_per_call\":{:.1f}}}\n", text, ns_per_call(program.record(1)));
}

}  // namespace
}  // namespace gpushare::shim

int main() {
  using namespace gpushare::shim;
  for (const Program& program : iterating_programs()) report(program, true);
  for (const Program& program : aimless_programs()) report(program, false);
}
