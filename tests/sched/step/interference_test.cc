// SPDX-License-Identifier: Apache-2.0
#include "sched/step/interference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::event;
using test::FakeGpu;
using test::FakeSchedulerRig;
using test::Handles;
using test::program;
using test::SchedulerRig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ProcessId kVictim{100, 5000}, kOther{101, 5001}, kCulprit{200, 6000};
constexpr uint32_t kSetTimeslice = 0xA06C0103;
constexpr Handles kHandles{.client = 0xC1D00001, .device = 1, .group = 0x10, .first_channel = 0x20};
constexpr Handles kHandlesOfOther{
    .client = 0xC1D00002, .device = 1, .group = 0x10, .first_channel = 0x20};

class InterferenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    clock_.advance(100s);
    for (const DriverEvent& one : program(kVictim, kHandles)) take(one);
    for (const DriverEvent& one : program(kOther, kHandlesOfOther)) take(one);
    take(event(kCulprit,
               ProcessOpened{.ns_pid = 0, .cgroup_id = 0, .uid = 1234, .command = "evil"}));
  }
  void take(const DriverEvent& one) {
    registry_.apply(one);
    interference_.note(one);
  }
  std::vector<ChannelRef> channels(const Handles& handles = kHandles) const {
    std::vector<ChannelRef> all;
    for (uint32_t i = 0; i < handles.channels; ++i)
      all.push_back({handles.client, handles.first_channel + i});
    all.push_back({handles.client, handles.first_channel + 0x1000});  // of its copies
    return all;
  }
  void freeze(const ProcessId& by, const std::vector<ChannelRef>& what) {
    ASSERT_TRUE(gpu_.freeze(0, what));
    take(event(by, ChannelsSwitched{true, what}));
  }
  void step() {
    interference_.undo();
    clock_.advance(Interference::kPause);
  }
  const Holder& victim() { return *registry_.holder(kVictim, 0); }

  ManualClock clock_;
  FakeGpu gpu_;
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Ledger ledger_{*region_};
  Registry registry_{gpu_.gpus()};
  Enforcer enforcer_{gpu_, ledger_, clock_, {}};
  Interference interference_{gpu_, registry_, enforcer_, clock_};
};

TEST_F(InterferenceTest, WhatAnotherFrozeIsThawedAtOnce) {
  freeze(kCulprit, channels());
  EXPECT_EQ(gpu_.frozen_channels(), 9);
  interference_.undo();
  EXPECT_EQ(gpu_.frozen_channels(), 0) << "copies too";
  ASSERT_THAT(interference_.deeds(), SizeIs(1));
  EXPECT_EQ(describe(interference_.deeds()[0]),
            "process 200 (evil, user 1234) froze process 100, 1 time");
  EXPECT_THAT(interference_.note_of(kVictim), HasSubstr("frozen by 200 (evil)"));
  EXPECT_THAT(interference_.note_of(kOther), IsEmpty());
}

TEST_F(InterferenceTest, FreezesThatWereCountedNeedAsManyThaws) {
  for (int i = 0; i < 20; ++i) freeze(kCulprit, channels());
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(interference_.count(), 20u);
  EXPECT_THAT(interference_.deeds(), SizeIs(1)) << "one line for one that does it again";
}

// Whoever freezes group by group takes longer than the first thaw.
TEST_F(InterferenceTest, WhatWasFrozenSinceTheLastThawIsThawedSoonAndNotAtTheNextTick) {
  const std::vector<ChannelRef> all = channels();
  freeze(kCulprit, std::vector<ChannelRef>(all.begin(), all.begin() + 4));
  EXPECT_EQ(interference_.undo(), Time::max());
  clock_.advance(500us);
  freeze(kCulprit, std::vector<ChannelRef>(all.begin() + 4, all.end()));
  const Time next = interference_.undo();
  EXPECT_GT(gpu_.frozen_channels(), 0);
  ASSERT_LE(next, clock_.now() + Interference::kPause);
  clock_.advance(next - clock_.now());
  EXPECT_EQ(interference_.undo(), Time::max());
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(InterferenceTest, AFloodCostsFewCallsOfTheDriver) {
  for (int i = 0; i < 10'000; ++i) freeze(kCulprit, channels());
  gpu_.calls.clear();
  for (int i = 0; i < 10; ++i) interference_.undo();
  EXPECT_LE(gpu_.calls.size(), static_cast<std::size_t>(Interference::kMostThaws));
}

TEST_F(InterferenceTest, EachVictimOfOneCallIsThawed) {
  auto both = channels();
  for (const ChannelRef& channel : channels(kHandlesOfOther)) both.push_back(channel);
  both.push_back({0xC1D0FFFF, 1});  // nobody's
  freeze(kCulprit, both);
  interference_.undo();
  EXPECT_EQ(gpu_.frozen_channels(), 1);
  EXPECT_THAT(interference_.deeds(), SizeIs(2));
}

TEST_F(InterferenceTest, WhatAProcessDoesToItselfIsItsOwn) {
  freeze(kVictim, channels());
  take(event(kVictim, ControlMade{kHandles.client, kHandles.group, kSetTimeslice, 0, 7}));
  gpu_.calls.clear();
  interference_.undo();
  EXPECT_THAT(gpu_.calls, IsEmpty());
  EXPECT_THAT(interference_.deeds(), IsEmpty());
}

// What was read of the call may be made up, by a friend of one who is frozen for its cap.
TEST_F(InterferenceTest, AMadeUpFreezeThawsNobodyThatWeHaveFrozen) {
  const Enforcer::Target frozen{.holder = &victim(), .slice = {}, .is_frozen = true};
  enforcer_.apply(0, std::span(&frozen, 1));
  take(event(kCulprit, ChannelsSwitched{true, channels()}));
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(gpu_.freezes(channels()[0]), 1);
  // A true one is undone when its plan lets it run.
  freeze(kCulprit, channels());
  const Enforcer::Target running{.holder = &victim(), .slice = {}, .is_frozen = false};
  enforcer_.apply(0, std::span(&running, 1));
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

TEST_F(InterferenceTest, ASliceThatAnotherSetIsPutBack) {
  const Enforcer::Target ours{.holder = &victim(), .slice = 5000us, .is_frozen = false};
  enforcer_.apply(0, std::span(&ours, 1));
  const GroupRef group = victim().groups[0].ref;
  ASSERT_TRUE(gpu_.set_slice(group, 1us));
  take(event(kCulprit, ControlMade{group.client, group.group, kSetTimeslice, 0, 1}));
  interference_.undo();
  EXPECT_EQ(gpu_.slice_of(group.client, group.group), 5000us);
  EXPECT_EQ(describe(interference_.deeds().back()),
            "process 200 (evil, user 1234) changed the slice of process 100, 1 time");
  // What the process had before us is still what it gets at the end.
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.slice_of(group.client, group.group), 2048us);
}

TEST_F(InterferenceTest, TheOwnSliceOfOneThatWeLeaveAloneIsPutBack) {
  const GroupRef group = victim().groups[0].ref;
  take(event(kVictim, ControlMade{group.client, group.group, kSetTimeslice, 0, 3000}));
  ASSERT_TRUE(gpu_.set_slice(group, 1us));
  take(event(kCulprit, ControlMade{group.client, group.group, kSetTimeslice, 0, 1}));
  interference_.undo();
  EXPECT_EQ(gpu_.slice_of(group.client, group.group), 3000us);
}

TEST_F(InterferenceTest, TheDeadAreForgotten) {
  freeze(kCulprit, channels());
  registry_.close(kVictim);
  gpu_.calls.clear();
  interference_.undo();
  EXPECT_THAT(gpu_.calls, IsEmpty());
}

TEST_F(InterferenceTest, ManyCulpritsAreRememberedByTheLatest) {
  for (pid_t pid = 1000; pid < 1100; ++pid) freeze({pid, 1}, channels());
  ASSERT_THAT(interference_.deeds(), SizeIs(Interference::kMostDeeds));
  EXPECT_EQ(interference_.deeds().back().culprit.pid, 1099);
}

TEST_F(InterferenceTest, ChannelsThatTheVictimDoesNotHaveCostNothing) {
  for (uint32_t i = 0; i < 10'000; ++i)
    take(event(kCulprit, ChannelsSwitched{true, {{kHandles.client, 0x100'0000 + i}}}));
  interference_.undo();
  EXPECT_THAT(gpu_.calls, IsEmpty());
  EXPECT_THAT(interference_.deeds(), IsEmpty());
}

// --- freezes that nobody saw, on a simulated GPU ------------------------------------------------

class UnseenFreeze : public ::testing::Test {
 protected:
  static constexpr Nanos kWork = 15s;  // long enough to be at work

  // By a call that makes no event.
  void freeze(std::size_t program, int times = 1) {
    for (int i = 0; i < times; ++i)
      ASSERT_TRUE(rig_.machine.model.freeze(0, rig_.programs[program]->channels()));
  }
  double share(std::size_t program, Nanos time) { return rig_.measure(time)[program]; }
  const Interference& seen() { return rig_.scheduler->state().interference; }

  SchedulerRig rig_;
};

TEST_F(UnseenFreeze, IsFoundByTheStandstillAndUndone) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  const ProcessId evil{900, 1};
  rig_.processes.add(evil, "evil", 1234);
  rig_.machine.model.open_client(evil, {.ns_pid = 900, .uid = 1234, .command = "evil"});
  freeze(0);
  rig_.run_for(4s);
  EXPECT_NEAR(share(0, 2s), 0.5, 0.02);
  ASSERT_THAT(seen().deeds(), SizeIs(1));
  EXPECT_EQ(describe(seen().deeds()[0]),
            "somebody unseen froze process 100, 1 time (these use the driver and run nothing: 900 "
            "(evil, user 1234))");
  EXPECT_THAT(rig_.record(*rig_.programs[0]).note, HasSubstr("unseen"));
  EXPECT_EQ(rig_.record(*rig_.programs[1]).note[0], '\0');
}

TEST_F(UnseenFreeze, OfOneThatIsAloneIsUndone) {
  rig_.run_busy({{"a", {}}}, kWork);
  freeze(0);
  rig_.run_for(6s);
  EXPECT_NEAR(share(0, 2s), 1, 0.01);
}

TEST_F(UnseenFreeze, ThatWasCountedOftenIsUndone) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  freeze(0, 20);
  rig_.run_for(20s);
  EXPECT_NEAR(share(0, 2s), 0.5, 0.02);
}

TEST_F(UnseenFreeze, AgainAndAgainLeavesItsVictimAnEighth) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  freeze(0);
  rig_.run_for(4s);
  const Nanos before = rig_.programs[0]->executed(rig_.work[0]);
  for (int i = 0; i < 100; ++i) {
    freeze(0);
    rig_.run_for(200ms);
  }
  const auto ran = rig_.programs[0]->executed(rig_.work[0]) - before;
  EXPECT_GE(std::chrono::duration<double>(ran) / 20s, 0.5 / 8) << "of its half";
}

TEST_F(UnseenFreeze, FromBeforeTheAgentIsUndone) {
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  rig_.machine.run_for(1s);
  ASSERT_TRUE(rig_.observer.drain([](DriverEvent&&) {}));  // nobody was watching
  freeze(0);
  rig_.start();
  rig_.run_for(6s);
  EXPECT_NEAR(share(0, 2s), 0.5, 0.02);
  EXPECT_EQ(seen().count(), 1u);
}

TEST_F(UnseenFreeze, WithoutAnObserverIsUndone) {
  rig_.start(/*with_observer=*/false);
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  rig_.run_for(kWork);
  freeze(0);
  rig_.run_for(4s);
  EXPECT_NEAR(share(0, 2s), 0.5, 0.02);
  EXPECT_EQ(seen().count(), 1u);
}

TEST_F(UnseenFreeze, WhatWeHaveFrozenStaysFrozen) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  ASSERT_TRUE(rig_.tenants.set_frozen(rig_.programs[0]->process, true));
  rig_.run_for(1s);
  EXPECT_EQ(share(0, 2min), 0);
  EXPECT_EQ(seen().count(), 0u);
}

TEST_F(UnseenFreeze, WhoIsIdleCostsLittleAndIsNotReported) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  for (int i = 0; i < 20; ++i) rig_.add("idle", {});
  rig_.run_for(2min);
  const uint64_t controls = rig_.gpu.controls();
  rig_.run_for(2min);
  EXPECT_LE(rig_.gpu.controls() - controls, 2u * 20 * 32) << "32 thaws a minute for each";
  EXPECT_EQ(seen().count(), 0u);
}

TEST_F(UnseenFreeze, WhoWorksNowAndThenIsNotReported) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, kWork);
  std::vector<std::unique_ptr<sim::PeriodicKernel>> programs;
  for (Nanos pause = 1600ms; pause < 3s; pause += 100ms)
    programs.push_back(
        std::make_unique<sim::PeriodicKernel>(rig_.add("sometimes", {}), 1ms, pause));
  rig_.run_for(5min);
  EXPECT_EQ(seen().count(), 0u);
}

// As while programs start that hold the driver's lock: what waits behind a trial must not.
TEST(UnseenFreezes, ATrialEndsSoonWhereTheDriverIsSlow) {
  FakeGpu gpu;
  FakeSchedulerRig rig;
  gpu.attachable[100] = program(kVictim, kHandles);
  rig.processes.add(kVictim, "victim");
  gpu.fault = [&](const FakeGpu::Call& call) {
    if (call.kind == FakeGpu::Call::Kind::kThaw) rig.clock.advance(40ms);
    return Result<>();
  };
  rig.start(gpu);
  rig.run_for(4s);
  EXPECT_EQ(gpu.count(FakeGpu::Call::Kind::kThaw), 2u) << "of four";
}

}  // namespace
}  // namespace gpushare
