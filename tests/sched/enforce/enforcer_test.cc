// SPDX-License-Identifier: Apache-2.0
// The enforcer as a whole: the ledger is written ahead, refusals are believed and tried again, and
// under any faults nothing stays frozen.
#include "sched/enforce/enforcer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sched/enforce/enforcer_rig.h"

namespace gpushare {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST_F(EnforcerTest, WritesAheadOfEveryFreezeAndSlice) {
  gpu_.fault = [this](const FakeGpu::Call& call) -> Result<> {
    bool is_listed = false;
    ledger_.for_each([&](uint32_t, const LedgerRecord& record) {
      if (call.kind == Kind::kFreeze) is_listed |= record.freezes > 0 && record.channel_count == 8;
      if (call.kind == Kind::kSetSlice)
        is_listed |= record.slice_changed != 0 && record.original_slice_us == 2048;
    });
    if (call.kind == Kind::kFreeze || call.kind == Kind::kSetSlice) {
      EXPECT_TRUE(is_listed);
    }
    return {};
  };
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(calls(Kind::kSetSlice), 1u);
}

TEST_F(EnforcerTest, AnEndedProcessLeavesNothing) {
  apply({target(kA, true, Micros(1))});
  EXPECT_EQ(ledger_entries(), 1u);
  enforcer_.forget(kA, 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, ARefusalIsBelievedWhenItIsRepeated) {
  refuse(Kind::kFreeze);
  apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true)});
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_control);
  EXPECT_FALSE(state.is_frozen);
  EXPECT_NE(state.note.find("ask the driver"), std::string::npos);
  gpu_.calls.clear();
  apply({target(kA, true, Micros(1))});
  EXPECT_TRUE(gpu_.calls.empty()) << "left alone";
}

TEST_F(EnforcerTest, AProcessWithAnUnknownChannelClassIsOnlyObserved) {
  apply({target(kA, true, Micros(5000)), target(kB, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  gpu_.unknown_classes = {0xCC6F};
  registry_.apply(event(kA, ChannelCreated{.client = kHandlesA.client,
                                           .parent = kHandlesA.group,
                                           .channel = kHandlesA.first_channel + 8,
                                           .class_id = 0xCC6F}));
  apply({target(kA, true, Micros(5000)), target(kB, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_control);
  EXPECT_EQ(state.note, "channel class 0xcc6f is not known: observed only");
  EXPECT_TRUE(enforcer_.state(holder(kB)).can_control);
}

TEST_F(EnforcerTest, AnUnknownChannelClassIsNeverTouched) {
  gpu_.unknown_classes = {0xC86F};
  apply({target(kA, true, Micros(5000))});
  EXPECT_TRUE(gpu_.calls.empty());
  EXPECT_EQ(ledger_entries(), 0u);
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
}

TEST_F(EnforcerTest, WhatIsRefusedIsTriedAgainWithPausesThatGrow) {
  refuse(Kind::kFreeze, std::errc::too_many_files_open);
  std::vector<std::chrono::seconds> tried;  // since the one before
  std::size_t asked = 0;
  Time last{};
  for (int second = 0; second < 400; ++second) {
    apply({target(kA, true)});
    apply({target(kA, true)});
    if (calls(Kind::kFreeze) > std::exchange(asked, calls(Kind::kFreeze)))
      tried.push_back(std::chrono::duration_cast<std::chrono::seconds>(
          clock_.now() - std::exchange(last, clock_.now())));
    clock_.advance(1s);
  }
  const std::vector<std::chrono::seconds> expected{0s,  1s,  2s,  4s,  8s,  16s,
                                                   32s, 60s, 60s, 60s, 60s, 60s};
  EXPECT_EQ(tried, expected);
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_TRUE(enforcer_.state(holder(kA)).note.starts_with("again in "))
      << enforcer_.state(holder(kA)).note;
  gpu_.fault = nullptr;
  clock_.advance(60s);
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(enforcer_.state(holder(kA)).note, "");
}

TEST_F(EnforcerTest, AProcessThatIsGoneIsNoError) {
  refuse(Kind::kFreeze, std::errc::no_such_process);
  for (int i = 0; i < 3; ++i) apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
}

TEST_F(EnforcerTest, UndoAllLeavesTheGpuAsItWas) {
  apply({target(kA, true, Micros(1)), target(kB, false, Micros(9000))});
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  EXPECT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(2048));
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, AsksNothingOfADriverThatCannot) {
  gpu_.support_mut().can_freeze = false;
  gpu_.support_mut().can_set_slice = false;
  apply({target(kA, true, Micros(1))});
  EXPECT_TRUE(gpu_.calls.empty());
}

TEST_F(EnforcerTest, ReportsWhatItDidInOrder) {
  apply({target(kA, true, Micros(1))});
  apply({target(kA, false)});
  ASSERT_EQ(changes_.size(), 3u);
  EXPECT_EQ(changes_[0].kind, Enforcer::Change::Kind::kFreeze);
  EXPECT_EQ(changes_[1].kind, Enforcer::Change::Kind::kSlice);
  EXPECT_EQ(changes_[1].slice, Micros(1));
  EXPECT_EQ(changes_[2].kind, Enforcer::Change::Kind::kThaw);
}

TEST_F(EnforcerTest, RandomFaultsNeverLeaveAnythingFrozen) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    gpu_.fault = [&](const FakeGpu::Call&) -> Result<> {
      if (random() % 10 == 0) return make_error(std::errc::io_error, "ask the driver");
      return {};
    };
    for (int step = 0; step < 50; ++step) {
      apply({target(kA, random() % 2 == 0, Micros(1000 + random() % 3)),
             target(kB, random() % 2 == 0, Micros(1000 + random() % 3))});
      for (const Handles& handles : {kHandlesA, kHandlesB}) {
        const int count = gpu_.freezes({handles.client, handles.first_channel});
        EXPECT_LE(count, 1);
        if (count == 0) continue;
        bool is_listed = false;
        ledger_.for_each([&](uint32_t, const LedgerRecord& record) {
          is_listed |= record.client == handles.client && record.freezes > 0;
        });
        EXPECT_TRUE(is_listed);
      }
    }
    gpu_.fault = nullptr;
    enforcer_.undo_all();
    EXPECT_EQ(gpu_.frozen_channels(), 0);
    EXPECT_EQ(ledger_entries(), 0u);
    enforcer_.forget(kA, 0);
    enforcer_.forget(kB, 0);
  }
}

}  // namespace
}  // namespace gpushare
