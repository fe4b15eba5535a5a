// SPDX-License-Identifier: Apache-2.0
// What a hooked function is to us, and which feature needs it.
#pragma once

#include <cstdint>

#include "shmctl/shim/slot.h"

namespace gpushare::shim {

// hooks.def says what each is.
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
  kFinish,
  kLookup,
  kInit
};

// Which stream a null one, or the one that is not named, is.
enum class Flavor : uint8_t { kLegacy, kPerThread };

// The features (ShimFeature) with any of which a function of this kind is hooked.
constexpr uint32_t features_that_need(Kind kind) {
  switch (kind) {
    case Kind::kLaunch:
    case Kind::kOnGpu:
      return kShimGate | kShimPartitions | kShimIterations;
    case Kind::kCopy:
    case Kind::kWait:
    case Kind::kEvent:
    case Kind::kCapture:
    case Kind::kFinish:
      return kShimPartitions | kShimIterations;
    case Kind::kOrder:
    case Kind::kCaptured:
    case Kind::kStream:
    case Kind::kContext:
      return kShimPartitions;
    case Kind::kLookup:
      return ~0u;
    case Kind::kInit:  // only that the agent is asked before
      return 0;
  }
  return 0;
}

// Waits at the gate, counts as a launch, and takes its stream to the process's present partition.
constexpr bool is_launch(Kind kind) { return kind == Kind::kLaunch || kind == Kind::kOnGpu; }

}  // namespace gpushare::shim
