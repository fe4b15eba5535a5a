// SPDX-License-Identifier: Apache-2.0
// Freezes and thaws of a process that makes and frees channels, and of a driver that refuses.
#include "sched/enforce/freezes.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/sched/enforce/enforcer_rig.h"

namespace gpushare {
namespace {

using namespace test;

using FreezesTest = EnforcerTest;

TEST_F(FreezesTest, FreezesTheComputeChannelsOnceAndThawsThemOnce) {
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "not the copy channel";
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_FALSE(enforcer_.state(holder(kB)).is_frozen);
  apply({target(kA, true)});
  EXPECT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 1);
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(calls(Kind::kThaw), 1u);
  apply({target(kA, false)});
  EXPECT_EQ(calls(Kind::kThaw), 1u);
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(FreezesTest, FreezesSeveralProcessesInOneCallAfterItHasThawedOthers) {
  apply({target(kA, true), target(kB, true)});
  ASSERT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(gpu_.calls[0].channels.size(), 16u);
  apply({target(kA, false), target(kB, true)});
  gpu_.calls.clear();
  apply({target(kA, true, Micros(1000)), target(kB, false, Micros(1))});
  ASSERT_GE(gpu_.calls.size(), 4u);
  EXPECT_EQ(gpu_.calls[0].kind, Kind::kThaw);
  EXPECT_EQ(gpu_.calls[1].kind, Kind::kFreeze);
}

TEST_F(FreezesTest, FreezesWhatAFrozenProcessMakesLater) {
  apply({target(kA, true)});
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xC86F}));
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 9);
  EXPECT_EQ(gpu_.calls.back().channels.size(), 1u);
  Handles second = kHandlesA;
  second.group = 0x11;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 17);
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u) << "it stayed frozen all along";
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(FreezesTest, ForgetsChannelsThatTheProcessFreed) {
  apply({target(kA, true)});
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.calls.back().channels.size(), 7u);
}

TEST_F(FreezesTest, ForgetsGroupsThatTheProcessFreed) {
  Handles second = kHandlesA;
  second.group = 0x11;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 2u);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 1u);
}

TEST_F(FreezesTest, OneProcessesRefusalDoesNotSpareTheOthers) {
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    for (const ChannelRef& channel : call.channels)
      if (call.kind == Kind::kFreeze && channel.client == kHandlesA.client)
        return make_error(std::errc::operation_not_permitted, "ask the driver");
    return {};
  };
  apply({target(kA, true), target(kB, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_TRUE(enforcer_.state(holder(kB)).is_frozen);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(FreezesTest, AFreezeThatFailedHalfwayIsTakenBack) {
  gpu_.fault = [this](const FakeGpu::Call& call) -> Result<> {
    if (call.kind != Kind::kFreeze) return {};
    gpu_.fault = nullptr;
    const Result<> done = gpu_.freeze(0, std::span(call.channels).first(3));
    refuse(Kind::kFreeze);
    return make_error(std::errc::io_error, "ask the driver");
  };
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(FreezesTest, AChannelThatIsGoneDoesNotSpareTheOthers) {
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    const ChannelRef gone{kHandlesA.client, kHandlesA.first_channel + 2};
    if (call.kind == Kind::kFreeze && std::ranges::find(call.channels, gone) != call.channels.end())
      return make_error(std::errc::no_such_process, "freeze channels");
    return {};
  };
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 15);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  const std::size_t asked = gpu_.calls.size();
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.calls.size(), asked) << "it is not asked for again";
  apply({target(kA, false), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(FreezesTest, AThawThatFailsIsTriedAgain) {
  apply({target(kA, true), target(kB, true)});
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    for (const ChannelRef& channel : call.channels)
      if (channel.client == kHandlesA.client) return make_error(std::errc::io_error, "thaw");
    return {};
  };
  apply({target(kA, false), target(kB, false)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_FALSE(enforcer_.state(holder(kB)).is_frozen);
  EXPECT_EQ(ledger_entries(), 1u);
  gpu_.fault = nullptr;
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(FreezesTest, WhoIsLeftAloneIsStillThawedWhenThatFailedAtFirst) {
  apply({target(kA, true, Micros(500))});
  gpu_.fault = [](const FakeGpu::Call&) -> Result<> {
    return make_error(std::errc::io_error, "ask the driver");
  };
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xC86F}));
  apply({target(kA, true)});
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x78, 0xC86F}));
  apply({target(kA, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  gpu_.fault = nullptr;
  apply({target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 1u) << "the slice";
}

TEST_F(FreezesTest, DoesNotFreezeWhatTheLedgerCannotHold) {
  for (int32_t i = 0; i < int{kMaxLedger}; ++i)
    ASSERT_TRUE(ledger_.note_slice(
        {.pid = 1000 + i, .start_ticks = 9, .gpu = 0, .client = 9, .group = 1}, 3, 2048));
  apply({target(kA, true)});
  EXPECT_EQ(calls(Kind::kFreeze), 0u);
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
}

// After events were lost a frozen channel may have been freed and made again under its handle.
class DoubtTest : public EnforcerTest {
 protected:
  void freeze_and_doubt(int times) {
    apply({target(kA, true), target(kB, true)});
    for (int i = 0; i < times; ++i) {
      registry_.doubt(kA.pid);
      apply({target(kA, true), target(kB, true)});
    }
  }
  static constexpr ChannelRef kFirst{kHandlesA.client, kHandlesA.first_channel};
};

TEST_F(DoubtTest, WhatIsFrozenIsFrozenAgainAndNotThawedForAMoment) {
  freeze_and_doubt(2);
  EXPECT_EQ(calls(Kind::kThaw), 0u);
  EXPECT_EQ(gpu_.freezes(kFirst), 3);
  EXPECT_EQ(gpu_.freezes({kHandlesB.client, kHandlesB.first_channel}), 1);
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u) << "it was frozen once";
  apply({target(kA, false), target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.freezes(kFirst), 1);
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(DoubtTest, AnotherChannelOfTheSameHandleIsFrozen) {
  apply({target(kA, true)});
  ASSERT_TRUE(gpu_.thaw(0, std::span(&kFirst, 1)));  // the new one is not frozen
  registry_.doubt(kA.pid);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.freezes(kFirst), 1);
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

// As often as recovery thaws, at most.
TEST_F(DoubtTest, WhoLosesEventsWithoutAnEndIsThawedInTheEnd) {
  freeze_and_doubt(100);
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  EXPECT_LE(gpu_.freezes(kFirst), 1 + static_cast<int>(ControlledGroup::kMostAgain));
  apply({target(kA, false), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(DoubtTest, RecoveryThawsAsOften) {
  freeze_and_doubt(ControlledGroup::kMostAgain);
  recover(gpu_, *region_, processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(DoubtTest, WhatIsForgottenIsThawedAsOften) {
  freeze_and_doubt(3);
  enforcer_.forget(kA, 0);
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
}

TEST_F(DoubtTest, ARefusedFreezeLeavesNothingFrozenTooOften) {
  freeze_and_doubt(1);
  refuse(Kind::kFreeze, std::errc::io_error);
  registry_.doubt(kA.pid);
  apply({target(kA, true), target(kB, true)});
  gpu_.fault = nullptr;
  for (int i = 0; i < 3; ++i) {
    clock_.advance(2s);
    apply({target(kA, true), target(kB, true)});
  }
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  apply({target(kA, false), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// The driver has carried it out and refuses all the same, also to take it back.
TEST_F(DoubtTest, WhatARefusedFreezeHasFrozenOnceMoreIsThawedAsOften) {
  freeze_and_doubt(1);
  registry_.doubt(kA.pid);
  const std::function<Result<>(const FakeGpu::Call&)> bad = [&](const FakeGpu::Call& call) {
    const FakeGpu::Call made = call;
    const auto fault = std::exchange(gpu_.fault, nullptr);
    if (made.kind == Kind::kFreeze) (void)gpu_.freeze(0, made.channels);
    gpu_.fault = fault;
    return Result<>(make_error(std::errc::io_error, "ask the driver"));
  };
  gpu_.fault = bad;
  apply({target(kA, true), target(kB, true)});
  gpu_.fault = nullptr;
  ASSERT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 3);
  apply({target(kA, false), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

}  // namespace
}  // namespace gpushare
