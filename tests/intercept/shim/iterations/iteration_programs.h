// SPDX-License-Identifier: Apache-2.0
// What real programs ask of the driver, as far as the iteration recogniser sees it, and the truth.
// Modelled on what PyTorch, Hugging Face's generate(), vLLM and inference servers do in each step:
// which copies, which waits, how many kernels, and what of it varies. All functions of a program
// have random addresses; random choices come from the seed alone. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {

struct ProgramEvent {
  enum class Kind : uint8_t { kLaunch, kGraph, kToGpu, kFromGpu, kWait };
  Kind kind = Kind::kLaunch;
  bool begins = false;  // truth: the first launch of an iteration
  bool waits = false;
  Phase phase = Phase::kUnknown;  // truth, of a launch that begins
  uint32_t blocks = 0;
  uint64_t function = 0;
  uint64_t bytes = 0;
  uint64_t stream = 0;
  uint64_t at_ns = 0;
};

struct Program {
  const char* name;
  std::vector<ProgramEvent> (*record)(uint64_t seed);
};

std::span<const Program> training_programs();
std::span<const Program> serving_programs();
std::span<const Program> iterating_programs();  // both
std::span<const Program> aimless_programs();    // those without iterations

// Feeds one event. Returns true if it begins an iteration and the recogniser trusts itself.
bool feed(IterationRecogniser& recogniser, const ProgramEvent& event);

}  // namespace gpushare::shim
