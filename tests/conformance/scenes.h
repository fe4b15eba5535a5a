// SPDX-License-Identifier: Apache-2.0
// All scenes, by subject. A scene says one line, which expected.h holds and which must be the same
// on every driver that keeps to CUDA's documentation.
#pragma once

#include <span>

#include "tests/conformance/stage.h"

namespace gpushare::conformance {

struct Scene {
  const char* name;
  void (*play)(Stage&);
};

std::span<const Scene> default_stream_scenes();
std::span<const Scene> stream_scenes();
std::span<const Scene> event_scenes();
std::span<const Scene> refusal_scenes();
std::span<const Scene> green_context_scenes();
std::span<const Scene> capture_scenes();
std::span<const Scene> graph_scenes();
std::span<const Scene> virtual_memory_scenes();

// The work in `waiting` must wait for the work that is held in `held` ("ab").
void expect_waits(Stage& stage, CUstream held, CUstream waiting);
// The work in `passing` must not wait for it ("ba").
void expect_passes(Stage& stage, CUstream held, CUstream passing);

}  // namespace gpushare::conformance
