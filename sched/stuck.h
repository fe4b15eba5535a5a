// SPDX-License-Identifier: Apache-2.0
// Does an agent that lives, but does nothing any more, hold programs? One that is stopped, waits
// for ever or turns in a loop thaws nobody, and nothing tells of it: its supervisor looks. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shmctl/base/clock.h"
#include "shmctl/layout.h"

namespace gpushare {

// An agent with something on a GPU publishes itself each tick, a second at most. Driver calls that
// wait for another program's (its memory, its context) take tenths of a second.
inline constexpr Nanos kStuckAfter{3'000'000'000};

// How many channel groups and processes an agent that is stuck keeps frozen; 0: it is not stuck, or
// keeps none, or `agent` has not published itself yet. `now`: CLOCK_MONOTONIC.
uint32_t held_by_stuck(const Region& region, pid_t agent, Time now);

}  // namespace gpushare
