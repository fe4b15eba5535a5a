// SPDX-License-Identifier: Apache-2.0
// This process's tie to the agent: which features the agent wants of it, and its slot. It is made
// when the program first looks for the driver, or calls a function of gpushare.h; a program that
// does neither is left alone.
//
// Any thread, also after fork(): all of it lies on a page that the kernel clears in a child, which
// so starts over with a slot of its own. If there is no agent, or it wants nothing, the slot is one
// that nobody writes: an open gate and no partition.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/link/thread_lock.h"
#include "shmctl/shim/life.h"
#include "shmctl/shim/slot.h"

namespace gpushare::shim {

class Streams;
class Progress;
class Credits;
class Graphs;

// Zero bytes are a process that has not asked yet.
struct Process {
  ThreadLock lock;                 // of attach()
  std::atomic<uint32_t> features;  // ShimFeature, that the agent wants
  // The recogniser of iterations is told of calls: with kShimIterations, unless the program
  // announces its iterations or the recogniser is asleep (progress.h).
  std::atomic<bool> is_telling;
  std::atomic<ShimSlot*> slot;  // null: not asked yet
  // The page that says whether the agent of a slot lives, and of which; null: there is none.
  std::atomic<const ShimLife*> life;
  std::atomic<const ShimSlot*> life_of;
  std::atomic<uint64_t> ignored_gate;   // see gate.cc; 0: none
  std::atomic<uint64_t> next_look_ns;   // when to ask for an agent again
  std::atomic<uint64_t> look_pause_ns;  // the length of the pause before that
  std::atomic<uint64_t> wake;           // see wake.h
  std::atomic<int32_t> contexts;        // that the program has; see done.h
  ThreadLock primaries[kShimGpus];      // by device; see special_calls.h
  std::atomic<Streams*> streams;        // see streams.h
  std::atomic<Progress*> progress;      // see progress.h
  std::atomic<Credits*> credits;        // see credits.h
  std::atomic<Graphs*> graphs;          // see graphs.h
};

namespace detail {
extern std::atomic<Process*> process;
}

// REQUIRES: attach() has returned in this process or in one that it is a fork of.
inline Process& this_process() { return *detail::process.load(std::memory_order_acquire); }

// The features that the agent wants; 0 without an agent. The first call in a process asks, and
// waits for the answer at most a second.
uint32_t attach();

// The slot of this process. Attaches it if that has not been done.
[[gnu::always_inline]] inline ShimSlot& slot() {
  ShimSlot* mine = this_process().slot.load(std::memory_order_acquire);
  if (__builtin_expect(mine == nullptr, 0)) {
    attach();
    mine = this_process().slot.load(std::memory_order_acquire);
  }
  return *mine;
}

// Whether the agent of that slot is known to have died. It may have, also if not.
inline bool is_agent_gone(const ShimSlot& slot) {
  const Process& process = this_process();
  if (process.life_of.load(std::memory_order_acquire) != &slot) return false;
  const ShimLife* const life = process.life.load(std::memory_order_relaxed);
  return life != nullptr && has_died(*life);
}

// If the agent of `mine` has died or hangs, asks for its successor: for 10 ms at most, once a
// second; if that does not answer in time, more and more rarely, down to once in 64 s. The features
// stay what they were.
void attach_again(ShimSlot& mine);

uint64_t monotonic_ns();

// Returns true if the driver is loaded and has no green contexts, so that the feature
// kShimPartitions must be left out: the one thing that the link has to know of the driver.
// driver/driver.cc defines it.
bool is_driver_too_old();

}  // namespace gpushare::shim
