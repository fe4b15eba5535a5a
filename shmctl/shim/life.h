// SPDX-License-Identifier: Apache-2.0
// AgentLife: tells every process with a slot that the agent has died, at its next look and without
// the supervisor. The agent holds a robust mutex in a page of its own for as long as it lives; the
// kernel marks the mutex when the agent dies, before it closes any file, which may take a quarter
// of a second (sched/daemon/lifeline.h). A process gets the page beside its slot, and reads one
// word. It cannot map the page to write, so nothing that it does reaches the agent's list of
// mutexes or another process.
//
// begin() is called once, on the agent's main thread, which ends last. The rest may be called on
// any thread; it is inline, because the shim links nothing.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

inline constexpr std::size_t kShimLifeBytes = 4096;
inline constexpr uint64_t kShimLifeMagic = 0x314546494C535047;  // "GPSLIFE1", little endian

struct ShimLife {
  alignas(
      64) std::atomic<uint32_t> owner;  // the mutex's first word: a thread, and what became of it
  unsigned char mutex[60];              // what the C library keeps besides
  std::atomic<uint64_t> magic;          // kShimLifeMagic once the mutex is held
};

// Whether the agent that made the page has died, or has let go of it. False for a page that says
// nothing.
inline bool has_died(const ShimLife& life) {
  if (life.magic.load(std::memory_order_acquire) != kShimLifeMagic) return false;
  const uint32_t owner = life.owner.load(std::memory_order_relaxed);
  return (owner & FUTEX_OWNER_DIED) != 0 || (owner & FUTEX_TID_MASK) == 0;
}

class AgentLife {
 public:
  // Errors: those of memfd_create(), mmap(), pthread_mutex_lock() and of sealing the page.
  static Result<std::unique_ptr<AgentLife>> begin();
  // From then on the agent counts as dead.
  ~AgentLife();
  AgentLife(const AgentLife&) = delete;
  AgentLife& operator=(const AgentLife&) = delete;

  // For DescriptorMessage::put(): the page can be mapped by it, to read only.
  int fd() const { return fd_.get(); }

 private:
  AgentLife(Fd fd, ShimLife* life) : fd_(std::move(fd)), life_(life) {}

  const Fd fd_;
  ShimLife* const life_;
};

}  // namespace gpushare
