// SPDX-License-Identifier: Apache-2.0
// StallWatch: says whether an agent that lives has stalled (it is stopped, waits for ever or turns
// in a loop) while it keeps processes frozen. Nothing else reports that. The supervisor calls it on
// its main thread. It reads the control plane, and remembers what it saw before.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

using namespace std::chrono_literals;

class StallWatch {
 public:
  // An agent with processes on a GPU publishes its record at least once a second; driver calls that
  // wait for another process's (its memory, its context) take tenths of a second. The agent has
  // stalled when kLooks looks, kBetween apart, find the same publication. Looks are counted, and
  // not the record's age, because a machine that was paused as a whole makes the record old at once
  // although its agent goes on.
  static constexpr Nanos kBetween = 2s;
  static constexpr int kLooks = 3;

  // Returns how many channel groups and processes a stalled agent keeps frozen. Returns 0 when the
  // agent has not stalled, keeps nothing frozen, or has not published itself yet. Call it at least
  // every kBetween; calls that come sooner return 0 and change nothing.
  uint32_t look(const Region& region, pid_t agent, Time now);

 private:
  Time next_{};
  pid_t agent_ = 0;
  uint64_t published_ns_ = 0;
  int seen_ = 0;  // how many looks in a row have found published_ns_
};

}  // namespace gpushare
