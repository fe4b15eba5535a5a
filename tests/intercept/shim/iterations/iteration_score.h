// SPDX-License-Identifier: Apache-2.0
// How often the recogniser is right. A boundary is when it is reported, with trust, at the very
// launch that begins the iteration. Missed and invented ones count against it:
//   accuracy = right / (right + missed + invented)
// from the seventeenth iteration on: until then it learns.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {

inline constexpr uint64_t kFirstSeed = 101, kLastSeed = 103;  // none that the rules were made with
inline constexpr uint32_t kLearning = 16;                     // iterations
inline constexpr uint32_t kLearningPhases = 500;              // a few prompts

struct Score {
  uint64_t right = 0, missed = 0, invented = 0;
  uint64_t phases = 0, known_phases = 0, wrong_phases = 0;

  double accuracy() const {
    const uint64_t all = right + missed + invented;
    return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all);
  }
  double known() const {
    return phases == 0 ? 1 : static_cast<double>(known_phases) / static_cast<double>(phases);
  }
};

inline void add(Score& score, const Program& program, uint64_t seed) {
  const auto recogniser = std::make_unique<IterationRecogniser>();
  uint32_t begun = 0;
  for (const ProgramEvent& event : program.record(seed)) {
    const bool is_reported = feed(*recogniser, event);
    begun += event.begins;
    if (begun <= kLearning) continue;
    score.right += event.begins && is_reported;
    score.missed += event.begins && !is_reported;
    score.invented += !event.begins && is_reported;
    if (!event.begins || begun <= kLearningPhases) continue;
    const Phase phase = recogniser->report().phase;
    score.phases += event.phase != Phase::kUnknown;
    score.known_phases += event.phase != Phase::kUnknown && phase != Phase::kUnknown;
    score.wrong_phases += phase != Phase::kUnknown && phase != event.phase;
  }
}

}  // namespace gpushare::shim
