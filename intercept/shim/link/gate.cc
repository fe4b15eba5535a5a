// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/link/gate.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/wake.h"
#include "shmctl/shim/credit.h"

namespace gpushare::shim {
namespace {

// How often a waiting thread checks that the agent is alive.
constexpr timespec kLookAtBeat{.tv_sec = 0, .tv_nsec = 50'000'000};

// A closed state that a dead agent has left, to be passed. An agent that only stood still closes it
// again, with another number, when it sees that a thread gave up. The next agent numbers its
// closings anew, in another slot, so the number alone does not tell them apart; pages of slots stay
// where they are.
uint64_t ignored(const ShimSlot& slot, uint32_t gate) {
  return reinterpret_cast<uintptr_t>(&slot) >> 12 << 32 | gate;
}

}  // namespace

namespace detail {

constinit thread_local uint32_t own_stripe = 0;

uint32_t take_stripe() {
  static constinit std::atomic<uint32_t> taken{0};
  uint32_t before = taken.load(std::memory_order_relaxed);
  while (before < kShimStripes - 1 &&
         !taken.compare_exchange_weak(before, before + 1, std::memory_order_relaxed)) {
  }
  return own_stripe = before + 1;
}

}  // namespace detail

bool is_agent_alive(const ShimSlot& slot) {
  // Signed, because the agent may beat between the two readings.
  const auto age =
      static_cast<int64_t>(monotonic_ns() - slot.beat_ns.load(std::memory_order_relaxed));
  return age <= static_cast<int64_t>(kShimBeatTimeoutNs) && !is_agent_gone(slot);
}

void wait_on(std::atomic<uint32_t>& word, uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &kLookAtBeat, nullptr, 0);
}

void sleep_briefly(int64_t ns) {
  const timespec time{.tv_sec = 0, .tv_nsec = ns};
  ::syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
}

void wait_at_gate(ShimSlot& slot) {
  Process& process = this_process();
  uint32_t gate = slot.gate.load(std::memory_order_relaxed);
  if (ignored(slot, gate) == process.ignored_gate.load(std::memory_order_relaxed)) return;
  const KeepErrno errno_of_the_program;
  const uint64_t begin = monotonic_ns();
  slot.waiting.fetch_add(1, std::memory_order_relaxed);
  while (((gate = slot.gate.load(std::memory_order_acquire)) & 1) != 0) {
    if (!is_agent_alive(slot)) {
      process.ignored_gate.store(ignored(slot, gate), std::memory_order_relaxed);
      slot.gave_up.fetch_add(1, std::memory_order_relaxed);
      open_credit(slot);
      break;
    }
    const bool is_new = slot.seen_gate.exchange(gate, std::memory_order_acq_rel) != gate;
    // Only who has turns looks at who comes to stand.
    if (is_new && slot.iterations.run_until.load(std::memory_order_relaxed) != 0) wake_agent();
    wait_on(slot.gate, gate);
  }
  slot.waiting.fetch_sub(1, std::memory_order_relaxed);
  slot.waited_ns.fetch_add(monotonic_ns() - begin, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
