// SPDX-License-Identifier: Apache-2.0
// Processes whose channel groups are one in hardware, and those that cannot be listed, are stopped
// instead of frozen.
#include "sched/enforce/sharing.h"

#include <gtest/gtest.h>

#include "tests/sched/enforce/enforcer_rig.h"
#include "tests/sched/enforce/late_line.h"

namespace gpushare {
namespace {

using namespace test;
using namespace std::chrono_literals;

using SharingTest = EnforcerTest;

TEST_F(SharingTest, OfOneMpsServersClientsTheProcessIsStoppedAndNoChannelFrozen) {
  apply({target(kA, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  // A and B turn out to hold the same group in hardware: what was done to A alone is undone.
  gpu_.hardware_groups[kHandlesA.group] = 6;
  constexpr Handles kSecond{.client = 0xA2, .device = 1, .group = 0x10, .first_channel = 0x40};
  for (const DriverEvent& one : program(kA, kSecond)) registry_.apply(one);
  apply({target(kA, false, Micros(5000)), target(kB, true, Micros(3000))});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  EXPECT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(2048));
  EXPECT_EQ(gpu_.stopped, std::set{kB});
  EXPECT_EQ(ledger_entries(), 1u);
  for (const ProcessId& process : {kA, kB})
    EXPECT_NE(enforcer_.state(holder(process)).note.find("MPS"), std::string::npos);
  EXPECT_TRUE(enforcer_.state(holder(kB)).is_frozen);

  apply({target(kA, false), target(kB, true)});
  EXPECT_EQ(enforcer_.state(holder(kB)).freezes, 1u);
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  // The one that stays is still a client of that server.
  enforcer_.forget(kB, 0);
  enforcer_.undo_all();
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.stopped, std::set{kA});
}

TEST_F(SharingTest, AStoppedProcessThatLosesItsGroupRunsOn) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  enforcer_.forget(kA, 0);
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(SharingTest, AProcessThatAnotherLetsGoOnIsStoppedAgain) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true), target(kB, false)});
  gpu_.stopped.clear();  // by a SIGCONT of somebody else's
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u);
  apply({target(kA, false), target(kB, false)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(SharingTest, WhatCannotBeResumedStaysInTheLedger) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true), target(kB, true)});
  refuse(Kind::kResume);
  enforcer_.forget(kA, 0);
  EXPECT_EQ(ledger_entries(), 2u);
  refuse(Kind::kResume, std::errc::no_such_process);
  enforcer_.forget(kB, 0);
  EXPECT_EQ(ledger_entries(), 1u) << "it is gone";
}

TEST_F(SharingTest, ChannelsThatCouldNotBeThawedAreBeforeTheProcessIsStopped) {
  apply({target(kA, true)});
  refuse(Kind::kThaw);
  gpu_.hardware_groups[kHandlesA.group] = 6;
  constexpr Handles kSecond{.client = 0xA2, .device = 1, .group = 0x10, .first_channel = 0x40};
  for (const DriverEvent& one : program(kA, kSecond)) registry_.apply(one);
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_TRUE(gpu_.stopped.empty());
  gpu_.fault = nullptr;
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0) << "they would hold B";
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  enforcer_.undo_all();
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(SharingTest, AProcessStoppedForTwoGpusRunsOnWhenNeitherWantsItStopped) {
  FakeGpu gpu(2);
  Registry registry(gpu.gpus());
  Enforcer enforcer(gpu, ledger_, clock_, nullptr);
  gpu.hardware_groups[kHandlesA.group] = 6;
  for (const ProcessId& process : {kA, kB}) {
    for (uint32_t i = 0; i < 2; ++i) {
      const Handles handles{.client = static_cast<uint32_t>(process.pid) + i,
                            .device = 1,
                            .group = 0x10,
                            .first_channel = 0x20};
      for (const DriverEvent& one : program(process, handles, i)) registry.apply(one);
    }
  }
  const auto apply_on = [&](uint32_t index, bool is_frozen) {
    const std::vector<Enforcer::Target> targets{{registry.holder(kA, index), Micros(0), is_frozen},
                                                {registry.holder(kB, index), Micros(0), false}};
    enforcer.apply(index, targets);
  };
  apply_on(0, true);
  apply_on(1, true);
  apply_on(0, false);
  EXPECT_EQ(gpu.stopped, std::set{kA});
  apply_on(1, false);
  EXPECT_TRUE(gpu.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(SharingTest, AStopIsWrittenAheadAndWhoCannotBeStoppedIsOnlyObserved) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, false), target(kB, false)});
  gpu_.fault = [&](const FakeGpu::Call& call) -> Result<> {
    if (call.kind != Kind::kStop) return {};
    EXPECT_EQ(ledger_entries(), 1u);
    return make_error(std::errc::operation_not_permitted, "stop process");
  };
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(SharingTest, GroupsOfOneProcessMayBeOneInHardware) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(SharingTest, AGroupNumberThatIsUsedAgainMakesNobodyAnMpsClient) {
  constexpr Handles kNew{.client = 0xA, .device = 1, .group = 0x11, .first_channel = 0x40};
  gpu_.hardware_groups = {{kHandlesA.group, 6}, {kNew.group, 7}};
  registry_.apply(event(kB, ObjectFreed{kHandlesB.client, kHandlesB.client}));
  constexpr Handles kLater{.client = 0xB, .device = 1, .group = 0x12, .first_channel = 0x60};
  gpu_.hardware_groups[kLater.group] = 8;
  for (const DriverEvent& one : program(kB, kLater)) registry_.apply(one);
  apply({target(kA, false), target(kB, false)});
  // B's new group gets the number of A's, and A's new one that of B's, in one step.
  constexpr Handles kLast{.client = 0xB, .device = 1, .group = 0x13, .first_channel = 0x80};
  gpu_.hardware_groups = {
      {kNew.group, 8}, {kLast.group, 6}, {kHandlesA.group, 99}, {kLater.group, 98}};
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  registry_.apply(event(kB, ObjectFreed{kLater.client, kLater.group}));
  for (const DriverEvent& one : program(kA, kNew)) registry_.apply(one);
  for (const DriverEvent& one : program(kB, kLast)) registry_.apply(one);
  apply({target(kA, true), target(kB, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 16);
}

TEST_F(SharingTest, AProcessThatIsNotFollowedAnyMoreSharesNothing) {
  gpu_.hardware_groups = {{kHandlesA.group, 6}};
  apply({target(kA, false)});
  gpu_.hardware_groups = {{kHandlesA.group, 9}};  // A's, which nobody has looked at since
  constexpr Handles kNew{.client = 0xB, .device = 1, .group = 0x12, .first_channel = 0x60};
  gpu_.hardware_groups[kNew.group] = 6;
  registry_.apply(event(kB, ObjectFreed{kHandlesB.client, kHandlesB.client}));
  for (const DriverEvent& one : program(kB, kNew)) registry_.apply(one);
  apply({target(kB, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

// While programs start, the driver says the number of a group late: until then a freeze of it might
// be one of a whole MPS server.
TEST_F(SharingTest, NobodyIsTouchedBeforeTheDriverHasSaidWhoSharesAGroup) {
  const Nanos delay = 300ms;
  Enforcer enforcer(gpu_, ledger_, clock_, nullptr, late_lines(delay));
  const auto step = [&] {
    const std::vector<Enforcer::Target> targets{target(kA, true, Micros(5000)),
                                                target(kB, false, Micros(3000))};
    enforcer.begin_step();
    enforcer.apply(0, targets);
  };
  gpu_.hardware_groups[kHandlesA.group] = 6;
  step();
  EXPECT_TRUE(enforcer.is_behind());
  clock_.advance(299ms);
  step();
  EXPECT_TRUE(gpu_.calls.empty());
  clock_.advance(1ms);
  step();  // both have the number 6: they are asked together
  clock_.advance(299ms);
  step();
  EXPECT_TRUE(gpu_.calls.empty());
  clock_.advance(1ms);
  step();
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  EXPECT_EQ(calls(Kind::kFreeze), 0u);
  EXPECT_EQ(calls(Kind::kSetSlice), 0u);
  EXPECT_FALSE(enforcer.is_behind());
  enforcer.undo_all();
  EXPECT_TRUE(gpu_.stopped.empty());
}

TEST_F(SharingTest, AnAnswerThatComesTooLateIsNoneOfTheGroupThatHasTheHandleNow) {
  const Nanos delay = 300ms;
  Enforcer enforcer(gpu_, ledger_, clock_, nullptr, late_lines(delay));
  const auto step = [&] {
    const std::vector<Enforcer::Target> targets{target(kA, true), target(kB, false)};
    enforcer.apply(0, targets);
  };
  step();
  clock_.advance(200ms);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  for (const DriverEvent& one : program(kA, kHandlesA)) registry_.apply(one);
  step();
  clock_.advance(100ms);  // the answer of what is gone
  step();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  for (int i = 0; i < 4; ++i) {
    clock_.advance(200ms);
    step();
  }
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  enforcer.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(SharingTest, WhoSharesNothingForLongIsNoMpsClientAnyMore) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, false), target(kB, false)});
  registry_.close(kB);
  enforcer_.forget(kB, 0);
  clock_.advance(9s);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  clock_.advance(9s);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA}) << "not while it is stopped";
  apply({target(kA, false)});
  apply({target(kA, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(SharingTest, AProcessWithMoreGroupsThanCanBeListedIsStopped) {
  Handles more = kHandlesA;
  for (more.group = 0x100; more.group < 0x100 + kMaxLedger; ++more.group) {
    more.first_channel = 0x100000 + more.group * 16;
    more.channels = 1;
    for (const DriverEvent& one : program(kA, more))
      if (!std::holds_alternative<MemoryAllocated>(one.what)) registry_.apply(one);
  }
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(ledger_entries(), 2u);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_NE(enforcer_.state(holder(kA)).note.find("too many channel groups"), std::string::npos);
  apply({target(kA, false), target(kB, false)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

}  // namespace
}  // namespace gpushare
