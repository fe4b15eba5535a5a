// SPDX-License-Identifier: Apache-2.0
// What a process publishes of its iterations (ShimIterations), as one record: the shim writes it,
// on the thread that holds Progress's lock; the agent and the process itself read it, on any
// thread.
#pragma once

#include "shmctl/shim/slot.h"

namespace gpushare {

// The members have the names, units and meanings of those in ShimIterations.
struct PublishedIterations {
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;
  ShimPhase phase = ShimPhase::kUnknown;
  uint32_t slo_us = 0;
  uint32_t skipped = 0;
  uint64_t begun = 0, ended = 0;
  uint64_t period_ns = 0, p99_ns = 0, launches = 0;
  uint64_t busy_ns = 0, latency_ns = 0;
  uint64_t arrivals = 0;
  uint64_t began_ns = 0;
  uint64_t expected = 0;
};

namespace detail {
// Calls `visit(word, member)` for each of them.
template <class Words, class Record, class Visit>
void for_each_published(Words& words, Record& record, const Visit& visit) {
  visit(words.source, record.source);
  visit(words.confidence, record.confidence);
  visit(words.phase, record.phase);
  visit(words.begun, record.begun);
  visit(words.ended, record.ended);
  visit(words.period_ns, record.period_ns);
  visit(words.p99_ns, record.p99_ns);
  visit(words.launches, record.launches);
  visit(words.busy_ns, record.busy_ns);
  visit(words.latency_ns, record.latency_ns);
  visit(words.arrivals, record.arrivals);
  visit(words.slo_us, record.slo_us);
  visit(words.skipped, record.skipped);
  visit(words.began_ns, record.began_ns);
  visit(words.expected, record.expected);
}
}  // namespace detail

// REQUIRES: one writer at a time.
inline void publish(ShimIterations& words, const PublishedIterations& record) {
  const uint32_t writing = words.sequence.load(std::memory_order_relaxed) | 1;
  words.sequence.store(writing, std::memory_order_relaxed);
  // Release pairs with the acquire of the words in read_published(): a reader that reads one of
  // these also sees that `sequence` is odd, or has gone on, and discards what it has read.
  detail::for_each_published(words, record, [](auto& word, const auto& member) {
    word.store(member, std::memory_order_release);
  });
  words.sequence.store(writing + 1, std::memory_order_release);
}

// Reads at most 100 times, so that no process can hold the reader up. False: it was being written
// each time, or the writer has died in the middle. REQUIRES: nothing; the record may hold any
// values.
inline bool read_published(const ShimIterations& words, PublishedIterations* record) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint32_t before = words.sequence.load(std::memory_order_acquire);
    detail::for_each_published(words, *record, [](const auto& word, auto& member) {
      member = word.load(std::memory_order_acquire);
    });
    // Relaxed is enough: the acquires above keep this load behind them.
    if (before % 2 == 0 && words.sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace gpushare
