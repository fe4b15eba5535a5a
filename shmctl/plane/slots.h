// SPDX-License-Identifier: Apache-2.0
// Slot<T>: one record in shared memory that one process writes and any number of processes read,
// some through a read-only mapping. There are no locks: either side may die at any instruction.
//
// A slot holds two copies of the record and `version`, the number of completed writes; the last
// complete record is copies[version % 2]. A write fills the other copy, then increments the
// version. So a writer that dies in the middle leaves the last complete record in force, and a
// reader that was overtaken sees another version afterwards and reads again: it never returns a
// mixed record. A slot of zero bytes is valid and reads as T{}.
//
// Threads: one writer at a time (the agent, or its supervisor once it is dead), any readers.
// Records travel as 64-bit atomic words: that is no data race in C++, and plain moves on x86-64.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace gpushare {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared memory must not hide a lock");

template <class T>
struct alignas(64) Slot {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);
  static constexpr std::size_t kWords = sizeof(T) / sizeof(uint64_t);

  std::atomic<uint64_t> version;  // completed writes; 0 when it was never written
  std::atomic<uint64_t> copies[2][kWords];
};

// False when the slot was never written and reads as T{}. A scan of a table needs no copy then.
template <class T>
bool is_written(const Slot<T>& slot) {
  return slot.version.load(std::memory_order_acquire) != 0;
}

// Makes `record` what readers see from one instant on. Only one writer at a time may call.
template <class T>
void write_record(Slot<T>& slot, const T& record) {
  const uint64_t version = slot.version.load(std::memory_order_relaxed);
  auto& copy = slot.copies[(version + 1) % 2];
  // Release pairs with the acquire of the words in read_record(): a reader that picks up one of
  // these words also sees that `version` reached its present value, and discards what it read.
  const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
  for (std::size_t i = 0; i < Slot<T>::kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    copy[i].store(word, std::memory_order_release);
  }
  // Pairs with the acquire of `version` in read_record(): a reader that sees the new version sees
  // the whole record.
  slot.version.store(version + 1, std::memory_order_release);
}

// How often read_record() tries. An attempt fails only when the writer completes two whole writes
// within it.
inline constexpr int kReadAttempts = 1000;

// Returns the last complete record; nullopt only when the writer overtook this reader in every
// attempt, which a dead or idle writer never does.
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

// What was written last, or T{}. REQUIRES: no writer may overtake this reader, as where the agent
// that wrote is gone.
template <class T>
T last_record(const Slot<T>& slot) {
  return is_written(slot) ? read_record(slot).value_or(T{}) : T{};
}

}  // namespace gpushare
