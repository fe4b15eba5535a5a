// SPDX-License-Identifier: Apache-2.0
// Tests the reader of the context-switch log, and the clock that it converts times with.
#include "intercept/nvrm/switch_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

using namespace std::chrono_literals;

constexpr FakeRm::Call kGetTime{GS_NV_ESC_RM_CONTROL, GS_CTRL_TIMER_GET_TIME};
constexpr FakeRm::Call kFlush{GS_NV_ESC_RM_CONTROL, GS_CTRL_EVENTS_FLUSH};

class GpuClockTest : public NvrmTest {
 protected:
  // Checks that the error of a conversion is at most the one that the clock states.
  Nanos miss(const GpuClock& clock) const {
    const Time ours = clock.to_monotonic(1'000'000'000);
    const Time truth{Nanos(1'000'000'000 - rm_.gpu_clock_ahead_ns)};
    return ours > truth ? ours - truth : truth - ours;
  }
};

TEST_F(GpuClockTest, ConvertsWithinTheErrorThatItStates) {
  for (int64_t ahead : {int64_t{0}, int64_t{-3'600'000'000'000}, int64_t{1'700'000'000'000'000}}) {
    rm_.gpu_clock_ahead_ns = ahead;
    GpuClock clock;
    ASSERT_TRUE(clock.refresh(client(), 0, Time(1s)));
    EXPECT_LE(miss(clock), clock.error()) << ahead;
  }
}

// Four of the five readings are interrupted for 30 ms: the undisturbed one is used.
TEST_F(GpuClockTest, UsesTheShortestWindow) {
  rm_.gpu_clock_ahead_ns = 5'000'000;
  int reading = 0;
  rm_.after_time_reading = [&] {
    if (++reading != 3) std::this_thread::sleep_for(30ms);
  };
  GpuClock clock;
  ASSERT_TRUE(clock.refresh(client(), 0, Time(1s)));
  EXPECT_LT(clock.error(), 15ms);
  EXPECT_LE(miss(clock), clock.error());
}

TEST_F(GpuClockTest, ComparesAgainAfterASecondOnly) {
  GpuClock clock;
  ASSERT_TRUE(clock.refresh(client(), 0, Time(10s)));
  const size_t first = rm_.count(kGetTime);
  ASSERT_TRUE(clock.refresh(client(), 0, Time(10s + 999ms)));
  EXPECT_EQ(rm_.count(kGetTime), first);
  rm_.gpu_clock_ahead_ns += 1'000'000'000;
  ASSERT_TRUE(clock.refresh(client(), 0, Time(11s)));
  EXPECT_EQ(rm_.count(kGetTime), 2 * first);
  EXPECT_LE(miss(clock), clock.error());
}

// The driver's lock is held for tens of milliseconds while a program starts.
TEST_F(GpuClockTest, SlowAnswersAreAskedForOnceAndSpoilNothing) {
  GpuClock clock;
  ASSERT_TRUE(clock.refresh(client(), 0, Time(10s)));
  const Nanos error = clock.error();
  const Time before = clock.to_monotonic(123);
  const size_t first = rm_.count(kGetTime);
  rm_.after_time_reading = [] { std::this_thread::sleep_for(30ms); };
  ASSERT_TRUE(clock.refresh(client(), 0, Time(11s)));
  EXPECT_EQ(rm_.count(kGetTime), first + 1);
  EXPECT_EQ(clock.to_monotonic(123), before);
  EXPECT_EQ(clock.error(), error);
  ASSERT_TRUE(clock.refresh(client(), 0, Time(11s + 900ms)));
  EXPECT_EQ(rm_.count(kGetTime), first + 1) << "asked again after a second only";
  rm_.after_time_reading = nullptr;
  rm_.gpu_clock_ahead_ns += 1'000;
  // On a busy machine an answer may be a slow one by itself.
  bool is_right = false;
  for (Time now(12s); now < Time(100s) && !is_right; now += 1s) {
    ASSERT_TRUE(clock.refresh(client(), 0, now));
    is_right = miss(clock) <= clock.error();
  }
  EXPECT_TRUE(is_right);
}

TEST_F(GpuClockTest, AFailedComparisonKeepsTheOldOne) {
  GpuClock clock;
  ASSERT_TRUE(clock.refresh(client(), 0, Time(10s)));
  const Time before = clock.to_monotonic(123);
  rm_.fail_nth(2, {.status = GS_NV_ERR_INVALID_STATE});
  auto done = clock.refresh(client(), 0, Time(20s));
  ASSERT_FALSE(done);
  EXPECT_STREQ(done.error().step, "read GPU clock");
  EXPECT_EQ(clock.to_monotonic(123), before);
  EXPECT_TRUE(clock.refresh(client(), 0, Time(20s))) << "asked again at once";
}

class SwitchLogTest : public NvrmTest {
 protected:
  void SetUp() override {
    NvrmTest::SetUp();
    rm_.gpu_clock_ahead_ns = 777'000'000'000;
    auto opened = SwitchLog::open(client(), 0);
    ASSERT_TRUE(opened) << opened.error().message();
    log_.emplace(std::move(*opened));
  }
  void write(uint32_t count, uint32_t first_context = 0) {
    for (uint32_t i = 0; i < count; ++i)
      rm_.log_switch(0, i % 2 == 0 ? GS_SWITCH_START : GS_SWITCH_END, 100 + i % 7,
                     first_context + i, rm_.gpu_now());
  }
  SwitchBatch read() {
    auto batch = log_->read();
    EXPECT_TRUE(batch) << batch.error().message();
    return batch ? std::move(*batch) : SwitchBatch{};
  }
  static std::vector<uint32_t> contexts(const SwitchBatch& batch) {
    std::vector<uint32_t> all;
    for (const SwitchRecord& record : batch.records) all.push_back(record.context);
    return all;
  }

  std::optional<SwitchLog> log_;
};

TEST_F(SwitchLogTest, GivesRecordsInOrderOnce) {
  rm_.log_switch(0, GS_SWITCH_START, 41, 7, rm_.gpu_now());
  rm_.log_switch(0, GS_SWITCH_END, 41, 7, rm_.gpu_now());
  rm_.log_switch(0, GS_SWITCH_START, 42, 8, rm_.gpu_now());
  const SwitchBatch batch = read();
  ASSERT_EQ(batch.records.size(), 3u);
  EXPECT_EQ(batch.records[0].pid, 41);
  EXPECT_EQ(batch.records[0].context, 7u);
  EXPECT_EQ(batch.records[0].gpu, 0u);
  EXPECT_TRUE(batch.records[0].is_start);
  EXPECT_FALSE(batch.records[1].is_start);
  EXPECT_EQ(batch.records[2].pid, 42);
  EXPECT_EQ(batch.lost, 0u);
  EXPECT_TRUE(read().records.empty());
}

TEST_F(SwitchLogTest, NothingNewIsAnEmptyBatchThatIsCompleteUntilNow) {
  const Time before = std::chrono::steady_clock::now();
  const SwitchBatch batch = read();
  EXPECT_TRUE(batch.records.empty());
  EXPECT_EQ(batch.lost, 0u);
  EXPECT_GE(batch.complete_until, before);
  EXPECT_LE(batch.complete_until, std::chrono::steady_clock::now());
}

TEST_F(SwitchLogTest, TimesAreConvertedToOurClock) {
  const Time switched = std::chrono::steady_clock::now();
  rm_.log_switch(
      0, GS_SWITCH_START, 1, 1,
      static_cast<uint64_t>(switched.time_since_epoch().count() + rm_.gpu_clock_ahead_ns));
  const Time from = std::chrono::steady_clock::now();
  const SwitchBatch batch = read();
  const Nanos reading = std::chrono::steady_clock::now() - from;
  ASSERT_EQ(batch.records.size(), 1u);
  EXPECT_LE(batch.records[0].time, switched + reading);
  EXPECT_GE(batch.records[0].time, switched - reading);
}

TEST_F(SwitchLogTest, ReadsOnAcrossTheEndOfTheRing) {
  uint32_t next = 0;
  for (int round = 0; round < 5; ++round) {
    constexpr uint32_t kPart = SwitchLog::kCapacity / 3;
    write(kPart, next);
    const SwitchBatch batch = read();
    ASSERT_EQ(batch.records.size(), kPart);
    EXPECT_EQ(batch.lost, 0u);
    for (uint32_t i = 0; i < kPart; ++i) ASSERT_EQ(batch.records[i].context, next + i);
    next += kPart;
  }
}

TEST_F(SwitchLogTest, EveryRecordIsGivenOrCountedWhenTheRingOverflows) {
  write(1);
  read();
  constexpr uint32_t kWritten = SwitchLog::kCapacity + 3616;
  write(kWritten, 1);
  SwitchBatch batch = read();
  EXPECT_EQ(batch.records.size() + batch.lost, kWritten);
  ASSERT_FALSE(batch.records.empty());
  EXPECT_EQ(batch.records.back().context, kWritten) << "the newest are kept";
  write(2, kWritten + 1);
  batch = read();
  EXPECT_THAT(contexts(batch), testing::ElementsAre(kWritten + 1, kWritten + 2));
  EXPECT_EQ(batch.lost, 0u);
}

// Exactly one whole ring was written, so that `put` is where it was. The next record shows the
// loss.
TEST_F(SwitchLogTest, AWholeRingUnreadIsCountedWithTheNextRecord) {
  write(1);
  read();
  write(SwitchLog::kCapacity, 1);
  const SwitchBatch unseen = read();
  write(1, 99);
  const SwitchBatch batch = read();
  EXPECT_EQ(unseen.records.size() + unseen.lost + batch.records.size() + batch.lost,
            SwitchLog::kCapacity + 1);
}

TEST_F(SwitchLogTest, CountsWhatTheHardwareDropped) {
  write(3);
  read();
  rm_.drop_switches(0, 12);
  write(2);
  EXPECT_EQ(read().lost, 12u);
  EXPECT_EQ(read().lost, 0u);
}

// The numbers have 16 bits: four rings later they are the same ones again, and so is the place.
TEST_F(SwitchLogTest, FourRingsUnreadAreALoss) {
  for (const uint32_t written :
       {4 * SwitchLog::kCapacity, 4 * SwitchLog::kCapacity + 100, 5 * SwitchLog::kCapacity - 1}) {
    write(7);
    read();
    write(written, 1000);
    const SwitchBatch batch = read();
    EXPECT_GT(batch.lost, 0u) << written;
    EXPECT_EQ(batch.records.size() + batch.lost, written);
    ASSERT_FALSE(batch.records.empty());
    EXPECT_EQ(batch.records.back().context, 1000 + written - 1) << "the newest are kept";
    EXPECT_EQ(read().lost, 0u);
  }
}

// What came before the gap is not given: time is nobody's before the first record after a loss.
TEST_F(SwitchLogTest, WhatTheHardwareDropsWithinARead) {
  write(3);
  read();
  write(3, 10);
  rm_.drop_switches(0, 12);
  write(2, 20);
  const SwitchBatch batch = read();
  EXPECT_THAT(contexts(batch), testing::ElementsAre(20u, 21u));
  EXPECT_EQ(batch.lost, 3u + 12u);
  write(2, 30);
  EXPECT_EQ(read().lost, 0u);
}

// The machine was paused, and the GPU was not.
TEST_F(SwitchLogTest, NoRecordIsInTheFutureAfterAJumpOfTheGpusClock) {
  write(2);
  EXPECT_EQ(read().records.size(), 2u);
  rm_.gpu_clock_ahead_ns += 10'000'000'000;
  write(1);
  SwitchBatch batch = read();
  const Time latest = std::chrono::steady_clock::now() + 1s;
  for (const SwitchRecord& record : batch.records) EXPECT_LT(record.time, latest);
  EXPECT_EQ(batch.records.size() + batch.lost, 1u);
  EXPECT_LT(batch.read_at, latest);
  write(1);
  batch = read();
  ASSERT_EQ(batch.records.size(), 1u) << "the clocks were compared anew";
  EXPECT_LT(batch.records[0].time, latest);
  EXPECT_EQ(batch.lost, 0u);
}

TEST_F(SwitchLogTest, NumbersMayWrapWithoutALoss) {
  rm_.drop_switches(0, 65'530);
  for (int i = 0; i < 10; ++i) {
    write(3);
    const SwitchBatch batch = read();
    EXPECT_EQ(batch.records.size(), 3u);
    EXPECT_EQ(batch.lost, 0u);
  }
}

TEST_F(SwitchLogTest, OtherRecordsArePassedOverAndAreNoLoss) {
  for (uint8_t tag : {0x00, 0x01, 0x02, 0x05, 0x06, 0xFE, 0x07, 0xFF})
    rm_.log_switch(0, tag, 9, tag, rm_.gpu_now());
  const SwitchBatch batch = read();
  EXPECT_THAT(contexts(batch), testing::ElementsAre(GS_SWITCH_START, GS_SWITCH_END));
  write(1);
  EXPECT_EQ(read().lost, 0u);
}

TEST_F(SwitchLogTest, TheKernelsAndHiddenPidsReadAsZero) {
  rm_.log_switch(0, GS_SWITCH_START, 0xFFFFFFFF, 1, rm_.gpu_now());
  rm_.log_switch(0, GS_SWITCH_START, 0, 1, rm_.gpu_now());
  const SwitchBatch batch = read();
  ASSERT_EQ(batch.records.size(), 2u);
  EXPECT_EQ(batch.records[0].pid, 0);
  EXPECT_EQ(batch.records[1].pid, 0);
}

TEST_F(SwitchLogTest, EachGpuHasItsOwn) {
  auto second = SwitchLog::open(client(), 1);
  ASSERT_TRUE(second) << second.error().message();
  rm_.log_switch(1, GS_SWITCH_START, 5, 55, rm_.gpu_now());
  EXPECT_TRUE(read().records.empty());
  auto batch = second->read();
  ASSERT_TRUE(batch);
  ASSERT_EQ(batch->records.size(), 1u);
  EXPECT_EQ(batch->records[0].gpu, 1u);
}

TEST_F(SwitchLogTest, AFailedFlushLosesNothing) {
  write(4);
  rm_.fail_always(kFlush, {.status = GS_NV_ERR_INVALID_STATE});
  auto failed = log_->read();
  ASSERT_FALSE(failed);
  EXPECT_STREQ(failed.error().step, "flush the switch log");
  rm_.forget_faults();
  EXPECT_EQ(read().records.size(), 4u);
}

TEST_F(SwitchLogTest, GivesItsMappingsBack) {
  EXPECT_EQ(rm_.mappings, 2);
  log_.reset();
  EXPECT_EQ(rm_.mappings, 0);
}

TEST_F(NvrmTest, ASwitchLogThatDoesNotOpenNamesTheStepAndKeepsNothing) {
  size_t calls = 0;
  {
    ASSERT_TRUE(SwitchLog::open(client(), 0));
    calls = rm_.calls.size();
  }
  ASSERT_EQ(rm_.mappings, 0);
  const char* steps[] = {"allocate the switch log", "map the switch log",
                         "allocate the switch log", "map the switch log",
                         "make the switch log",     "bind the switch log",
                         "start the switch log"};
  ASSERT_EQ(calls, std::size(steps));
  for (size_t nth = 0; nth < calls; ++nth) {
    for (const FakeRm::Failure failure :
         {FakeRm::Failure{.error = EPERM},
          FakeRm::Failure{.status = GS_NV_ERR_INSUFFICIENT_PERMISSIONS}}) {
      rm_.forget_faults();
      rm_.fail_nth(nth, failure);
      auto log = SwitchLog::open(client(), 0);
      ASSERT_FALSE(log);
      EXPECT_STREQ(log.error().step, steps[nth]);
      EXPECT_EQ(log.error().code, std::errc::operation_not_permitted);
      EXPECT_EQ(rm_.mappings, 0);
    }
  }
}

}  // namespace
}  // namespace gpushare::nvrm
