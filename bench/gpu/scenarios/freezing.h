// SPDX-License-Identifier: Apache-2.0
// Freezes a running program from outside, without an agent: finds its channels by late attach, and
// times the calls on them. The scenarios call this on the main thread.
#pragma once

#include <vector>

#include "bench/gpu/stage.h"

namespace gpushare::bench {

struct Channels {
  uint32_t gpu = 0;
  std::vector<ChannelRef> compute, all;
};

// Finds the channels of a program. Aborts when it has none.
Channels channels_of(Gpu& gpu, pid_t pid);

struct FreezeCycles {
  std::vector<double> freeze_us, thaw_us;  // of each call
  double frozen_fraction = 0;              // the part of the whole time
};

// Freezes the channels for `frozen` and thaws them for `thawed`, again and again until `until`; at
// the end they are thawed. Aborts when a call fails.
FreezeCycles freeze_cycles(Stage& stage, Gpu& gpu, uint32_t index,
                           const std::vector<ChannelRef>& channels, Nanos frozen, Nanos thawed,
                           Time until);

}  // namespace gpushare::bench
