// SPDX-License-Identifier: Apache-2.0
// Time slices: only what differs is set, the former one comes back, and what is furthest from its
// target comes first.
#include "sched/enforce/slices.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <vector>

#include "tests/sched/enforce/enforcer_rig.h"
#include "tests/sched/enforce/queued_line.h"

namespace gpushare {
namespace {

using namespace test;
using namespace std::chrono_literals;

TEST_F(EnforcerTest, SetsASliceOnlyWhenItChanges) {
  apply({target(kA, false, Micros(4000))});
  apply({target(kA, false, Micros(4000))});
  EXPECT_EQ(calls(Kind::kSetSlice), 1u);
  EXPECT_EQ(enforcer_.state(holder(kA)).slice, Micros(4000));
  apply({target(kA, false)});
  EXPECT_EQ(calls(Kind::kSetSlice), 1u) << "0 leaves it";
}

TEST_F(EnforcerTest, SetsTheSliceAgainWhenTheProcessChoseItsOwn) {
  constexpr uint32_t kSetTimeslice = 0xA06C0103;
  apply({target(kA, false, Micros(4000))});
  registry_.apply(
      event(kA, ControlMade{kHandlesA.client, kHandlesA.group, kSetTimeslice, 0, 2048}));
  apply({target(kA, false, Micros(4000))});
  EXPECT_EQ(calls(Kind::kSetSlice), 2u);
  registry_.apply(
      event(kA, ControlMade{kHandlesA.client, kHandlesA.group, kSetTimeslice, 0, 3000}));
  apply({target(kA, false, Micros(4000))});
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(3000));
}

TEST_F(EnforcerTest, WhoRefusesASliceKeepsHisOwnAndIsFrozenAllTheSame) {
  apply({target(kA, true, Micros(1))});
  refuse(Kind::kSetSlice);
  apply({target(kA, true, Micros(500))});
  apply({target(kA, true, Micros(500))});
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_set_slice);
  EXPECT_EQ(state.note, "again in 1 s: ask the driver: Operation not permitted");
  EXPECT_TRUE(state.can_control) << "it must not escape its cap by that";
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(ledger_entries(), 1u) << "with the slice that could not be restored";
  const std::size_t asked = calls(Kind::kSetSlice);
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(calls(Kind::kSetSlice), asked) << "left alone";
  gpu_.fault = nullptr;
  clock_.advance(1s);
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(500));
  EXPECT_EQ(enforcer_.state(holder(kA)).note, "");
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
}

// What the registry has forgotten may be there all the same: after losses, for example.

// A process that frees channels at any moment must not escape by that.

// The hardware uses the number of a freed group again, at once.

// Any decisions under any faults: a channel is never frozen twice, what is frozen is listed, and in

// the end everything is as it was.

TEST_F(EnforcerTest, WhatIsFurthestFromItsTargetComesFirst) {
  constexpr int kPrograms = 64;
  const auto process = [](int i) { return ProcessId{1000 + i, 1}; };
  for (int i = 0; i < kPrograms; ++i) {
    const Handles handles{.client = 0x100 + static_cast<uint32_t>(i),
                          .device = 1,
                          .group = 0x10,
                          .first_channel = 0x20};
    for (const DriverEvent& one : program(process(i), handles)) registry_.apply(one);
  }
  const auto all = [&](const std::function<Micros(int)>& slice) {
    std::vector<Enforcer::Target> targets;
    for (int i = 0; i < kPrograms; ++i) targets.push_back(target(process(i), false, slice(i)));
    return targets;
  };
  apply(all([](int) { return Micros(1000); }));
  gpu_.calls.clear();
  // All move a little; two move far, up and down, and are named last.
  apply(all([](int i) {
    return i == kPrograms - 1 ? Micros(20'000) : i == kPrograms - 2 ? Micros(1) : Micros(1010);
  }));
  ASSERT_EQ(calls(Kind::kSetSlice), static_cast<std::size_t>(kPrograms));
  EXPECT_EQ(gpu_.calls[0].slice, Micros(1));
  EXPECT_EQ(gpu_.calls[1].slice, Micros(20'000));
}

// A line that goes on only as far as the test says, by half steps: a call begins, or comes back.
class LateSlicesTest : public EnforcerTest {
 protected:
  LateSlicesTest() {
    Handles second = kHandlesA;
    second.group = kSecond;
    second.first_channel = 0x40;
    for (const DriverEvent& one : program(kA, second)) added_.push_back(one);
  }
  void SetUp() override {
    EnforcerTest::SetUp();
    for (const DriverEvent& one : added_) registry_.apply(one);
  }
  void apply_late(std::vector<Enforcer::Target> targets) { late_.apply(0, targets); }
  // With a line that comes back at once.
  void settle(const std::vector<Enforcer::Target>& targets) {
    steps_ = {};
    is_quick_ = true;
    for (int i = 0; i < 4; ++i) late_.apply(0, targets);
    is_quick_ = false;
  }
  void go_on(uint32_t half_steps) {
    steps_ = {half_steps};
    late_.ask(0, [] { return DriverAnswer(); });
  }
  void end() {
    is_quick_ = true;
    late_.undo_all();
    EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
    EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kSecond), Micros(2048));
    EXPECT_EQ(gpu_.frozen_channels(), 0);
    EXPECT_EQ(ledger_entries(), 0u);
  }

  static constexpr uint32_t kSecond = 0x14;
  std::vector<DriverEvent> added_;
  std::deque<uint32_t> steps_;  // that are done at the next points where some may be; then none
  bool is_quick_ = false;
  QueuePace pace_{.below =
                      [this](uint32_t) {
                        if (is_quick_) return 100u;
                        if (steps_.empty()) return 0u;
                        const uint32_t next = steps_.front();
                        steps_.pop_front();
                        return next;
                      },
                  .may_stall = false};
  Enforcer late_{gpu_, ledger_, clock_, nullptr, queued_lines(pace_)};
};

TEST_F(LateSlicesTest, WhatIsRestoredIsNotSetMeanwhileWithoutBeingListed) {
  settle({target(kA, false, Micros(1000))});
  gpu_.unknown_classes.insert(0xFFFF);
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xFFFF}));
  apply_late({target(kA, false, Micros(1000))});  // which is to be only observed
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, 0x77}));
  apply_late({target(kA, false, Micros(3000))});
  settle({target(kA, false, Micros(3000))});
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(3000));
  end();
}

TEST_F(LateSlicesTest, WhoRefusesASliceGetsNoneOfThoseThatWereAskedForWithIt) {
  settle({target(kA, false, Micros(1000))});
  gpu_.fault = [&](const FakeGpu::Call& call) -> Result<> {
    if (call.kind == Kind::kSetSlice && call.group.group == kHandlesA.group)
      return make_error(std::errc::operation_not_permitted, "ask the driver");
    return {};
  };
  for (int i = 0; i < 2; ++i) {
    apply_late({target(kA, false, Micros(3000 + i))});
    go_on(4);  // the question, and the first group's
    late_.collect();
  }
  is_quick_ = true;
  late_.collect();
  gpu_.fault = nullptr;
  end();
}

TEST_F(LateSlicesTest, WhoHasGoneWhileItsSlicesAreSetIsForgottenOnce) {
  settle({target(kA, false, Micros(1000)), target(kB, false)});
  refuse(Kind::kFreeze);
  settle({target(kA, false, Micros(1000)), target(kB, false)});
  is_quick_ = true;
  apply_late({target(kA, false, Micros(1000)), target(kB, true)});
  is_quick_ = false;
  apply_late({target(kA, false, Micros(3000)), target(kB, true)});
  go_on(7);  // B's freeze, the question, the first slice, and the second one begins
  registry_.close(kA);
  late_.forget(kA, 0);
  steps_ = {0, 1};  // it comes back while B is undone
  late_.collect();
  gpu_.fault = nullptr;
  end();
}

// Another process has frozen it and set its slice: that is two questions.
TEST_F(LateSlicesTest, WhatIsMendedTwiceIsLeftAloneUntilBothAreDone) {
  settle({target(kA, false)});
  const ControlKey key{kA, 0};
  ASSERT_TRUE(late_.may_mend(key));
  for (int i = 0; i < 2; ++i) late_.mend(key, [] { return Result<>(); });
  go_on(3);  // the second one begins
  late_.collect();
  apply_late({target(kA, true)});
  steps_ = {1};  // it comes back
  late_.collect();
  registry_.close(kA);
  late_.forget(kA, 0);
  end();
}

// The second one's, that is: the first one's is asked for, and is to be restored.
TEST_F(LateSlicesTest, WhoseSliceCannotBeListedGetsNoneOfTheOthers) {
  Ledger ledger(*region_);
  Enforcer enforcer(gpu_, ledger, clock_, nullptr);
  LedgerKey other{.pid = 1, .start_ticks = 1, .gpu = 0, .client = 1, .group = 1};
  for (; ledger.groups().size() < kMaxLedger - 1; ++other.pid)
    ASSERT_TRUE(ledger.note_slice(other, 3, 2048));
  constexpr uint32_t kSetTimeslice = 0xA06C0103;
  for (const uint32_t group : {kHandlesA.group, kSecond})
    registry_.apply(event(kA, ControlMade{kHandlesA.client, group, kSetTimeslice, 0, 2048}));
  for (const Micros slice : {Micros(3000), Micros(4000)})
    enforcer.apply(0, std::vector{target(kA, false, slice)});
  EXPECT_FALSE(enforcer.state(holder(kA)).can_set_slice);
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  EXPECT_EQ(ledger.groups().size(), kMaxLedger - 1);
}

}  // namespace
}  // namespace gpushare
