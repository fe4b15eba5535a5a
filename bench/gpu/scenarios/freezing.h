// SPDX-License-Identifier: Apache-2.0
// Freezing from outside, without an agent: the driver objects of a running program, found by late
// attach, and the calls on them.
#pragma once

#include <vector>

#include "bench/gpu/stage.h"

namespace gpushare::bench {

struct Channels {
  uint32_t gpu = 0;
  std::vector<ChannelRef> compute, all;
};

// Aborts when the program has none.
Channels channels_of(Gpu& gpu, pid_t pid);

struct FreezeCycles {
  std::vector<double> freeze_us, thaw_us;  // each call
  double frozen_fraction = 0;              // of the time until `until`
};

// Freezes and thaws, so long each, until then. Aborts when a call fails; ends thawed.
FreezeCycles freeze_cycles(Stage& stage, Gpu& gpu, uint32_t index,
                           const std::vector<ChannelRef>& channels, Nanos frozen, Nanos thawed,
                           Time until);

}  // namespace gpushare::bench
