// SPDX-License-Identifier: Apache-2.0
// PendingEvents: driver events of the simulation that were not handed out yet. One thread.
#pragma once

#include <deque>
#include <utility>

#include "intercept/observer.h"

namespace gpushare::sim {

struct PendingEvents : std::deque<DriverEvent> {
  // Gives up to `most` events to `sink`, the oldest first. Returns how many.
  uint64_t hand_out(const Observer::Sink& sink, uint64_t most) {
    uint64_t count = 0;
    for (; !empty() && count < most; ++count) {
      DriverEvent event = std::move(front());
      pop_front();
      sink(std::move(event));
    }
    return count;
  }
};

}  // namespace gpushare::sim
