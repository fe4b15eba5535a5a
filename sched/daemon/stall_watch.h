// SPDX-License-Identifier: Apache-2.0
// StuckWatch: does an agent that lives, but does nothing any more, hold programs? One that is
// stopped, waits for ever or turns in a loop thaws nobody, and nothing tells of it: its supervisor
// looks. Pure but for what it saw before; one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class StuckWatch {
 public:
  // An agent with something on a GPU publishes itself each tick, a second at most; driver calls
  // that wait for another program's (its memory, its context) take tenths of a second. So many
  // looks so far apart have found the same publication when it is stuck: looks and not age, because
  // a machine that was paused as a whole is older at once, and its agent goes on.
  static constexpr Nanos kBetween{2'000'000'000};
  static constexpr int kLooks = 3;

  // Call it at least every kBetween; more often does nothing. How many channel groups and processes
  // an agent that is stuck keeps frozen; 0: it is not stuck, or keeps none, or has not published
  // itself yet.
  uint32_t look(const Region& region, pid_t agent, Time now);

 private:
  Time next_{};
  pid_t agent_ = 0;
  uint64_t published_ns_ = 0;
  int seen_ = 0;  // that publication, by so many looks
};

}  // namespace gpushare
