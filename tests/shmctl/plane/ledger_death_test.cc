// SPDX-License-Identifier: Apache-2.0
// Tests that the ledger lists at least what the driver holds, at whichever instruction the agent
// dies. The agent is a stepped child; the driver is a few counters in shared memory that outlive
// it, as the real driver's freeze counts do.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "shmctl/plane/ledger.h"
#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

constexpr uint32_t kChannels = 70;  // more than one entry holds
constexpr uint32_t kFirstChannel = 0x5C000000;
constexpr uint32_t kDefaultSlice = 2048;
constexpr LedgerKey kGroup{
    .pid = 100, .start_ticks = 7, .gpu = 1, .client = 0xC1D00001, .group = 5};

struct FakeDriver {
  std::array<std::atomic<uint32_t>, kChannels> freezes;
  std::atomic<uint32_t> slice_us;

  void freeze() {
    for (auto& count : freezes) ++count;
  }
  void thaw() {
    for (auto& count : freezes) thaw_one(count);
  }
  static void thaw_one(std::atomic<uint32_t>& count) {
    if (count > 0) --count;  // a surplus thaw is harmless
  }
};

// What outlives the agent.
struct World {
  Region& region;
  FakeDriver& driver;

  // Checks that the ledger lists everything that the driver holds, and that no entry is half
  // written.
  void expect_all_listed() const {
    std::array<uint32_t, kChannels> listed{};
    bool is_slice_listed = false;
    for_each_entry(region, [&](uint32_t, const LedgerRecord& entry) {
      EXPECT_EQ(entry.pid, kGroup.pid);
      EXPECT_EQ(entry.start_ticks, kGroup.start_ticks);
      EXPECT_EQ(entry.client, kGroup.client);
      EXPECT_EQ(entry.group, kGroup.group);
      EXPECT_EQ(entry.fd, 33);
      for (uint32_t i = 0; i < entry.channel_count; ++i)
        listed.at(entry.channels[i] - kFirstChannel) += entry.freezes;
      if (entry.slice_changed != 0) {
        is_slice_listed = true;
        EXPECT_EQ(entry.original_slice_us, kDefaultSlice);
      }
    });
    for (uint32_t i = 0; i < kChannels; ++i) EXPECT_GE(listed[i], driver.freezes[i]);
    EXPECT_TRUE(is_slice_listed || driver.slice_us == kDefaultSlice);
  }

  // What the supervisor does.
  void recover(Ledger& ledger) const {
    ledger.for_each([&](uint32_t index, const LedgerRecord& entry) {
      for (uint32_t round = 0; round < entry.freezes; ++round)
        for (uint32_t i = 0; i < entry.channel_count; ++i)
          FakeDriver::thaw_one(driver.freezes.at(entry.channels[i] - kFirstChannel));
      if (entry.slice_changed != 0) driver.slice_us = entry.original_slice_us;
      ledger.clear(index);
    });
  }

  void expect_untouched_and_usable() const {
    for (const auto& count : driver.freezes) EXPECT_EQ(count, 0u);
    EXPECT_EQ(driver.slice_us, kDefaultSlice);
    for_each_entry(region,
                   [](uint32_t, const LedgerRecord&) { ADD_FAILURE() << "an entry is left"; });
    Ledger ledger(region);
    const auto index = ledger.note_slice(kGroup, 33, kDefaultSlice);
    ASSERT_TRUE(index);
    ledger.end_slice(*index);
  }
};

class LedgerDeath : public testing::Test {
 protected:
  LedgerDeath() {
    void* shared = ::mmap(nullptr, sizeof(FakeDriver), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    driver_ = new (shared) FakeDriver{};
    driver_->slice_us = kDefaultSlice;
    std::iota(channels_.begin(), channels_.end(), kFirstChannel);
  }
  ~LedgerDeath() override { ::munmap(driver_, sizeof(FakeDriver)); }

  World world() { return {plane_.region(), *driver_}; }
  FakeDriver& driver() { return *driver_; }
  std::span<const uint32_t> channels() const { return channels_; }

  void expect_recovery_after_each_step(const std::function<void()>& operation) {
    SteppedChild child(Stride::kInstruction, operation);
    if (!child.is_traced())
      GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
    uint64_t looks = 0, last = fingerprint();
    while (child.step()) {
      if (const uint64_t now = fingerprint(); now == std::exchange(last, now)) continue;
      ++looks;
      world().expect_all_listed();
      FakeDriver driver_copy;
      std::memcpy(static_cast<void*>(&driver_copy), driver_, sizeof driver_copy);
      std::memcpy(static_cast<void*>(copy_->ledger), plane_.region().ledger, sizeof copy_->ledger);
      const World copy{*copy_, driver_copy};
      Ledger recovery(copy.region);
      copy.recover(recovery);
      copy.expect_untouched_and_usable();
      if (HasFailure()) FAIL() << "after instruction " << child.steps();
    }
    EXPECT_GT(looks, 4u);
  }

 private:
  // A number that changes with what other processes see of the child: versions of entries and the
  // driver's state.
  uint64_t fingerprint() {
    uint64_t sum = 0;
    const auto mix = [&](uint64_t value) { sum = sum * 1'000'003 + value; };
    for (uint32_t i = 0; i < 4; ++i) mix(plane_.region().ledger[i].version);
    for (const auto& count : driver_->freezes) mix(count);
    mix(driver_->slice_us);
    return sum;
  }

  TempPlane plane_;
  std::unique_ptr<Region> copy_ = std::make_unique<Region>();
  FakeDriver* driver_;
  std::vector<uint32_t> channels_ = std::vector<uint32_t>(kChannels);
};

TEST_F(LedgerDeath, NoFreezeIsLostWhereverTheAgentDies) {
  Ledger ledger(world().region);
  expect_recovery_after_each_step([&] {
    for (int round = 0; round < 2; ++round) {
      const auto index = ledger.begin_freeze(kGroup, 33, channels());
      driver().freeze();
      driver().thaw();
      ledger.end_thaw(*index);
    }
  });
}

TEST_F(LedgerDeath, NoChangedSliceIsLostWhereverTheAgentDies) {
  Ledger ledger(world().region);
  expect_recovery_after_each_step([&] {
    const auto index = ledger.note_slice(kGroup, 33, driver().slice_us);
    driver().slice_us = 1;
    driver().slice_us = 9000;
    driver().slice_us = kDefaultSlice;
    ledger.end_slice(*index);
  });
}

TEST_F(LedgerDeath, RecoveryMayItselfDieAnywhereAndBeRunAgain) {
  Ledger ledger(world().region);
  ASSERT_TRUE(ledger.note_slice(kGroup, 33, kDefaultSlice));
  driver().slice_us = 1;
  ASSERT_TRUE(ledger.begin_freeze(kGroup, 33, channels()));
  driver().freeze();
  expect_recovery_after_each_step([&] { world().recover(ledger); });
}

// The same with a real kill and the region itself.
TEST_F(LedgerDeath, RegionOfAKilledAgentIsRecoveredInPlace) {
  Ledger ledger(world().region);
  const bool is_traced = die_along(
      Stride::kInstruction, [] {},
      [&] {
        const auto index = ledger.begin_freeze(kGroup, 33, channels().first(3));
        for (int i = 0; i < 3; ++i) ++driver().freezes[i];
        for (int i = 0; i < 3; ++i) --driver().freezes[i];
        ledger.end_thaw(*index);
      },
      [&] {
        world().expect_all_listed();
        Ledger recovery(world().region);
        world().recover(recovery);
        world().expect_untouched_and_usable();
      },
      20);
  if (!is_traced) GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
}

}  // namespace
}  // namespace gpushare
