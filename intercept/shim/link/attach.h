// SPDX-License-Identifier: Apache-2.0
// This process's tie to the agent: which features it is asked for, and its slot. Made at the first
// call that looks for the driver, or of gpushare.h, so a program that makes none is left alone
// altogether.
//
// Any thread, also after fork(): all of it lies on a page that the kernel clears in a child, which
// thereby starts over with a slot of its own. Where there is no agent, or it wants nothing, the
// slot is one that nobody writes: an open gate and no partition.
#pragma once

#include <atomic>
#include <cstdint>

#include "shmctl/shim/slot.h"

namespace gpushare::shim {

class Streams;
class Progress;

// Zero is the state of a process that has not asked yet.
struct Process {
  std::atomic<uint32_t> lock;  // of attach(): 0 free, else the thread that holds it
  std::atomic<uint32_t> features;
  // The recogniser of iterations is told of calls: with kShimIterations, unless the program
  // announces them, or it is asleep (progress.h).
  std::atomic<bool> is_telling;
  std::atomic<ShimSlot*> slot;          // null: not asked yet
  std::atomic<uint32_t> ignored_gate;   // this closed state was left by a dead agent
  std::atomic<uint64_t> next_look_ns;   // when to ask for an agent again
  std::atomic<uint64_t> look_pause_ns;  // that was made before it
  std::atomic<Streams*> streams;        // see streams.h
  std::atomic<Progress*> progress;      // see progress.h
};

namespace detail {
extern std::atomic<Process*> process;
}

// REQUIRES: attach() has returned in this process or in one that it is a fork of.
inline Process& this_process() { return *detail::process.load(std::memory_order_acquire); }

// The features that the agent wants; 0 without one. The first call waits for it, at most a second.
uint32_t attach();

// Never null.
[[gnu::always_inline]] inline ShimSlot& slot() {
  ShimSlot* mine = this_process().slot.load(std::memory_order_acquire);
  if (__builtin_expect(mine == nullptr, 0)) {
    attach();
    mine = this_process().slot.load(std::memory_order_acquire);
  }
  return *mine;
}

// Where the agent of `mine` has died, or hangs: looks for its successor, for 10 ms at most, and at
// most once a second; ever more rarely, down to once in 64 s, where one is there that does not
// answer. Features stay what they were.
void attach_again(const ShimSlot& mine);

uint64_t monotonic_ns();

// Whether the driver is loaded and older than green contexts: the one thing that the link must know
// of the driver, without which it would grant partitions. Defined above, by driver/driver.cc.
bool is_driver_too_old();

}  // namespace gpushare::shim
