// SPDX-License-Identifier: Apache-2.0
// Slot<T>: one record in shared memory that one process writes and any number read, some through a
// read-only mapping. No locks: a writer may die at any instruction and a reader at any other.
//
// A slot holds two copies of the record and the number of completed writes, `version`; the last
// complete record is copies[version % 2]. A write fills the other copy, then steps the version.
//   - The writer dies in the middle: the version has not moved, so readers still see the last
//     complete record, at once, and the next write starts over in the same copy. There is no
//     "being written" mark that a dead writer could leave behind.
//   - A reader is overtaken: its copy can only change after the version has moved, so it compares
//     the version before and after and reads again. It never returns a mixed record.
// A slot of zero bytes is valid and reads as T{}.
//
// Threads: one writer at a time (the agent; its supervisor once the agent is dead); readers any.
// Records travel as 64-bit atomic words: no data race in the C++ sense, and plain moves on x86-64.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace gpushare {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared memory must not hide a lock");

template <class T>
struct alignas(64) Slot {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);
  static constexpr std::size_t kWords = sizeof(T) / sizeof(uint64_t);

  std::atomic<uint64_t> version;  // completed writes; 0: never written
  std::atomic<uint64_t> copies[2][kWords];
};

// False: reads as T{}. Spares a scan of a table the copying.
template <class T>
bool is_written(const Slot<T>& slot) {
  return slot.version.load(std::memory_order_acquire) != 0;
}

// Makes `record` what readers see, all of it at one instant.
template <class T>
void write_record(Slot<T>& slot, const T& record) {
  const auto words = std::bit_cast<std::array<uint64_t, Slot<T>::kWords>>(record);
  const uint64_t version = slot.version.load(std::memory_order_relaxed);
  auto& copy = slot.copies[(version + 1) % 2];
  // Release pairs with the acquire of the words in read_record(): a reader that picks up one of
  // these words also sees that `version` reached its present value, and discards what it read.
  for (std::size_t i = 0; i < words.size(); ++i) copy[i].store(words[i], std::memory_order_release);
  // Pairs with the acquire of `version` in read_record(): who sees it sees the whole record.
  slot.version.store(version + 1, std::memory_order_release);
}

// The last complete record. Empty only if the writer overtook this reader kReadAttempts times in a
// row, which takes two whole writes within every attempt: never with a writer that is dead or idle.
inline constexpr int kReadAttempts = 1000;

template <class T>
std::optional<T> read_record(const Slot<T>& slot) {
  std::array<uint64_t, Slot<T>::kWords> words;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const uint64_t version = slot.version.load(std::memory_order_acquire);
    if (version == 0) return T{};
    const auto& copy = slot.copies[version % 2];
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = copy[i].load(std::memory_order_acquire);
    // Relaxed is enough: the acquires above keep this load behind them.
    if (slot.version.load(std::memory_order_relaxed) == version) return std::bit_cast<T>(words);
  }
  return std::nullopt;
}

}  // namespace gpushare
