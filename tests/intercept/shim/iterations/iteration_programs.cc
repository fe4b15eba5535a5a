// SPDX-License-Identifier: Apache-2.0
// Programs that have no iterations, and how an event reaches the recogniser.
#include "tests/intercept/shim/iterations/iteration_programs.h"

#include "tests/intercept/shim/iterations/iteration_networks.h"

namespace gpushare::shim {
namespace {

Events random_kernels(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i) {
    r.launch(r.below(300), 1 + r.below(4000));
    if (r.one_in(50)) r.item();
    if (r.one_in(70)) r.to_gpu(4096);
  }
  return r.take();
}

Events few_random_kernels(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i) {
    r.launch(r.below(3), 100);
    if (r.one_in(60)) r.item();
    if (r.one_in(60)) r.to_gpu(4096);
  }
  return r.take();
}

// The Thue-Morse word: no piece of it follows three times in a row.
Events thue_morse(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t i = 0; i < 200'000; ++i)
    r.launch(static_cast<uint32_t>(__builtin_popcount(i)) & 1, 100);
  return r.take();
}

// Every cell of a notebook computes something else.
Events notebook(uint64_t seed) {
  Recorder r(seed);
  for (uint32_t cell = 0; cell < 1500; ++cell) {
    r.think(1'000'000ULL * r.below(3000));
    const uint32_t length = 1 + r.below(300);
    const uint32_t first = r.below(2000), spread = 1 + r.below(60);
    if (r.one_in(2)) r.to_gpu(1 << r.below(24));
    for (uint32_t i = 0; i < length; ++i) r.launch(first + r.below(spread), 1 + r.below(5000));
    if (r.one_in(2)) r.item();
  }
  return r.take();
}

}  // namespace

std::span<const Program> iterating_programs() {
  static const std::vector<Program> all = [] {
    std::vector<Program> both(training_programs().begin(), training_programs().end());
    both.insert(both.end(), serving_programs().begin(), serving_programs().end());
    return both;
  }();
  return all;
}

std::span<const Program> aimless_programs() {
  static constexpr Program kPrograms[] = {
      {"random kernels, random waits", random_kernels},
      {"three kernels at random, random waits", few_random_kernels},
      {"Thue-Morse word", thue_morse},
      {"notebook", notebook},
  };
  return kPrograms;
}

bool feed(IterationRecogniser& recogniser, const ProgramEvent& event) {
  bool begins = false;
  switch (event.kind) {
    case ProgramEvent::Kind::kLaunch:
      begins = recogniser.launch(event.function, event.blocks, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kGraph:
      begins = recogniser.graph_launch(event.function, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kToGpu:
      recogniser.copy(CopyWay::kToGpu, event.bytes, event.waits, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kFromGpu:
      recogniser.copy(CopyWay::kFromGpu, event.bytes, event.waits, event.stream, event.at_ns);
      break;
    case ProgramEvent::Kind::kWait:
      recogniser.waited(event.stream, event.at_ns);
      break;
  }
  return begins && recogniser.is_trusted();
}

}  // namespace gpushare::shim
