// SPDX-License-Identifier: Apache-2.0
// The credit of a process: how its launches are held on the GPU, where they are in line already.
// Each wait that the shim puts in line has a number, one higher than the one before, and goes on
// when ShimCredit::word is not behind that number. Numbers are of the whole process, so what is let
// through contains all that it depends on. Numbers and word go in a circle, and the farthest that
// two may be apart is half of it:
//   open    the word is a quarter ahead of the last number, and is set anew long before that is
//           used up
//   closed  it is a quarter behind: nothing that is in line starts
// Any thread; the agent, the shim, and the supervisor when the agent is gone. All of it is inline,
// because the shim links nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "shmctl/shim/futex.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// A quarter of the circle, and after how many waits an open word is set anew.
inline constexpr uint32_t kCreditFar = 1u << 30, kCreditStale = 1u << 28;

// A wait is put in line for so much work, and for each launch that is longer. A wait takes 2.4 us
// on an H200 (0.6 % of kernels of 400 us, bench/results), so that waits cost at most 1 %.
inline constexpr std::chrono::nanoseconds kCreditSpacing = std::chrono::microseconds(250);

// How many waits beyond `word` the number is; 0 or less: it is let through.
constexpr int32_t credit_lacking(uint32_t word, uint32_t number) {
  return static_cast<int32_t>(number - word);
}

// Brings a word to the number, unless it is there already or ahead of it. Whatever another thread,
// or the GPU, writes meanwhile, this takes nothing back.
inline void advance_credit(std::atomic<uint32_t>& word, uint32_t number) {
  uint32_t now = word.load(std::memory_order_relaxed);
  while (credit_lacking(now, number) > 0 &&
         !word.compare_exchange_weak(now, number, std::memory_order_relaxed)) {
  }
}

inline void wake_credit(ShimSlot& slot) { wake_all(slot.credit.word); }

// Sets the word and wakes threads that wait for it.
inline void set_credit(ShimSlot& slot, uint32_t word) {
  if (slot.credit.word.exchange(word, std::memory_order_acq_rel) != word) wake_credit(slot);
}

// Returns true if the word was opened, and not dealt out or closed.
inline bool is_credit_open(const ShimSlot& slot) {
  const ShimCredit& credit = slot.credit;
  return credit_lacking(credit.word.load(std::memory_order_relaxed),
                        credit.issued.load(std::memory_order_relaxed)) <
         -static_cast<int32_t>(kCreditFar / 2);
}

// All that is in line is let through, and what comes.
inline void open_credit(ShimSlot& slot) {
  set_credit(slot, slot.credit.issued.load(std::memory_order_acquire) + kCreditFar);
}

// Nothing that is in line starts any more. A wait that is put in line meanwhile has a number a
// little higher, and is held all the more.
inline void close_credit(ShimSlot& slot) {
  set_credit(slot, slot.credit.issued.load(std::memory_order_acquire) - kCreditFar);
}

// Returns true if an open word has to be set anew: it would be used up after some 800 million
// waits. One that is closer was dealt out, and is left alone.
inline bool is_credit_stale(const ShimSlot& slot) {
  const int32_t ahead = -credit_lacking(slot.credit.word.load(std::memory_order_relaxed),
                                        slot.credit.issued.load(std::memory_order_relaxed));
  return is_credit_open(slot) && ahead < static_cast<int32_t>(kCreditFar - kCreditStale);
}

}  // namespace gpushare
