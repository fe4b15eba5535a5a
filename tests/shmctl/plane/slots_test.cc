// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

// All words of one write are the same, so that a mixture of two writes shows.
struct Uniform {
  std::array<uint64_t, 24> words{};
};

Uniform uniform(uint64_t value) {
  Uniform record;
  record.words.fill(value);
  return record;
}

bool is_uniform(const Uniform& record) {
  return std::ranges::count(record.words, record.words[0]) == std::ssize(record.words);
}

TEST(Slot, NeverWrittenReadsAsDefaults) {
  Slot<ProcessRecord> slot{};
  const auto record = read_record(slot);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->pid, 0);
  EXPECT_EQ(record->share_permille, kUnknown32);
  EXPECT_FALSE(is_written(slot));
}

TEST(Slot, ReadsWhatWasWrittenLast) {
  Slot<Uniform> slot{};
  for (uint64_t value = 1; value <= 5; ++value) {
    write_record(slot, uniform(value));
    EXPECT_EQ(read_record(slot)->words, uniform(value).words);
  }
  EXPECT_TRUE(is_written(slot));
}

TEST(Slot, HalfAWriteIsNotSeenAndDoesNotBlockTheNext) {
  Slot<Uniform> slot{};
  write_record(slot, uniform(7));
  slot.copies[0][0].store(99);  // what a writer that died in its second write leaves
  EXPECT_EQ(read_record(slot)->words, uniform(7).words);
  write_record(slot, uniform(8));
  EXPECT_EQ(read_record(slot)->words, uniform(8).words);
}

TEST(Slot, ReadersBesideAWriterSeeOnlyWholeRecordsInOrder) {
  constexpr uint64_t kWrites = 100'000;
  Slot<Uniform> slot{};
  std::atomic<bool> is_done = false;
  std::vector<std::jthread> readers;
  std::atomic<uint64_t> mixed = 0, backwards = 0;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!is_done) {
        const auto record = read_record(slot);
        if (!record) continue;
        if (!is_uniform(*record)) ++mixed;
        if (record->words[0] < last) ++backwards;
        last = record->words[0];
      }
    });
  }
  for (uint64_t value = 1; value <= kWrites; ++value) write_record(slot, uniform(value));
  is_done = true;
  readers.clear();
  EXPECT_EQ(mixed, 0u);
  EXPECT_EQ(backwards, 0u);
  EXPECT_EQ(read_record(slot)->words[0], kWrites);
}

TEST(SlotDeath, AtEveryInstructionOfAWriteTheOldOrTheNewRecordIsRead) {
  TempPlane plane;
  auto& slot = plane.region().gpus[0];
  GpuRecord old_record, new_record;
  std::ranges::fill(old_record.name, 'o');
  std::ranges::fill(new_record.name, 'n');
  old_record.log_lost = new_record.memory_bytes = 1;
  const auto is_same = [](const GpuRecord& a, const GpuRecord& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  };
  write_record(slot, old_record);

  SteppedChild child(Stride::kInstruction, [&] { write_record(slot, new_record); });
  if (!child.is_traced())
    GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
  bool is_new = false;
  while (child.step()) {
    const auto seen = read_record(slot);
    ASSERT_TRUE(seen) << "after instruction " << child.steps();
    if (!is_new) is_new = is_same(*seen, new_record);
    ASSERT_TRUE(is_same(*seen, is_new ? new_record : old_record))
        << "after instruction " << child.steps();
  }
  EXPECT_TRUE(is_new);
  EXPECT_GT(child.steps(), Slot<GpuRecord>::kWords);
}

TEST(SlotDeath, AfterAnyDeathOfAWriterTheNextWriterSucceeds) {
  TempPlane plane;
  auto& slot = plane.region().gpus[0];
  GpuRecord record;
  uint32_t count = 0;
  const bool is_traced = die_along(
      Stride::kInstruction,
      [&] {
        record.index = ++count;
        write_record(slot, record);
      },
      [&] {
        record.index = 1'000'000;
        write_record(slot, record);
      },
      [&] {
        record.index = ++count;
        write_record(slot, record);
        ASSERT_EQ(read_record(slot)->index, count);
      },
      100);
  if (!is_traced) GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
  EXPECT_GT(count, 50u);
}

}  // namespace
}  // namespace gpushare
