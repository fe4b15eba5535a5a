// SPDX-License-Identifier: Apache-2.0
// What a process says in its slot (shmctl/shim/slot.h), as plain values. The process wrote it, so
// it may be stopped in the middle of a write, be dying, or lie: what is read is in its range, or it
// is missing. What can only be told from two readings is checked in sched/slo/round.h. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "sched/policy/policy.h"
#include "shmctl/shim/slot.h"
#include "shmctl/shim/time_histogram.h"

namespace gpushare {

struct SlotReading {
  bool shows_work = false;                   // launches and waits are counted
  uint64_t launches = 0;                     // of all threads
  uint32_t waits = 0;                        // threads that wait for work on a GPU
  bool is_read = false;                      // the iterations could be read
  bool is_at_gate = false;                   // a thread waits there
  bool is_done = false;                      // it has done its work, and launched nothing since
  std::optional<Time> at_boundary{};         // since when a thread waits there
  uint64_t begun = 0;                        // iterations
  Time began{};                              // the last of them; zero: unknown
  std::optional<IterationsView> iterations;  // none: a write was under way at each of a few looks
};

SlotReading read_slot(const ShimSlot& slot);

// How long the iterations took that have ended since the process has the slot.
TimeHistogram read_times(const ShimSlot& slot);

}  // namespace gpushare
