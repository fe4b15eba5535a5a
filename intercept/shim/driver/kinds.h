// SPDX-License-Identifier: Apache-2.0
// What kinds of functions hooks.def lists, and which features need them. Constants.
#pragma once

#include <cstdint>

#include "shmctl/shim/slot.h"

namespace gpushare::shim {

// hooks.def says what each of them is.
enum class Kind : uint8_t {
  kLaunch,
  kCopy,
  kOnGpu,
  kWait,
  kEvent,
  kOrder,
  kCapture,
  kCaptured,
  kStream,
  kContext,
  kGraph,
  kFinish,
  kRelease,
  kShown,
  kLookup,
  kInit
};

// Which default stream a null handle, or no handle, means: the legacy one, or the thread's own.
enum class Flavor : uint8_t { kLegacy, kPerThread };

// The features (ShimFeature) with any of which a function of this kind is hooked.
constexpr uint32_t features_that_need(Kind kind) {
  switch (kind) {
    case Kind::kLaunch:
    case Kind::kOnGpu:
      return kShimGate | kShimPartitions | kShimIterations | kShimCredit;
    case Kind::kWait:
    case Kind::kFinish:
      return kShimGate | kShimPartitions | kShimIterations;
    case Kind::kCopy:
    case Kind::kEvent:
    case Kind::kCapture:
      return kShimPartitions | kShimIterations;
    case Kind::kOrder:
    case Kind::kRelease:
    case Kind::kCaptured:
    case Kind::kStream:
    case Kind::kGraph:
      return kShimPartitions;
    case Kind::kContext:
      return kShimPartitions | kShimIterations | kShimCredit;
    case Kind::kShown:
      return kShimShown;
    case Kind::kLookup:
      return ~0u;
    case Kind::kInit:  // never wrapped: the agent is asked before the program gets it
      return 0;
  }
  return 0;
}

// Returns true for a call that waits at the gate, counts as a launch, and takes its stream to the
// partition of the process.
constexpr bool is_launch(Kind kind) { return kind == Kind::kLaunch || kind == Kind::kOnGpu; }

}  // namespace gpushare::shim
