// SPDX-License-Identifier: Apache-2.0
// What is not followed any more is undone first, and what cannot be undone is tried again.
#include "sched/enforce/leftovers.h"

#include <gtest/gtest.h>

#include "tests/sched/enforce/enforcer_rig.h"
#include "tests/sched/enforce/late_line.h"

namespace gpushare {
namespace {

using namespace test;
using namespace std::chrono_literals;

using LeftoversTest = EnforcerTest;

TEST_F(LeftoversTest, WhatIsForgottenIsThawedFirst) {
  apply({target(kA, true, Micros(1)), target(kB, true)});
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 0);
  Handles second = kHandlesA;
  second.group = 0x12;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  apply({target(kA, false), target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  enforcer_.forget(kB, 0);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// Programs that end while others start: the driver answers late, and nobody waits for it.
TEST_F(LeftoversTest, WhatIsForgottenIsListedUntilTheDriverHasUndoneIt) {
  Nanos delay{};
  Enforcer enforcer(gpu_, ledger_, clock_, nullptr, late_lines(delay));
  const std::vector<Enforcer::Target> both{target(kA, true), target(kB, true, Micros(5000))};
  for (int i = 0; i < 3; ++i) enforcer.apply(0, both);
  ASSERT_EQ(gpu_.frozen_channels(), 16);
  ASSERT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(5000));
  delay = 300ms;
  const std::size_t before = gpu_.calls.size();
  enforcer.forget(kB, 0);
  enforcer.undo_leftovers(processes_);  // nor is it undone by another
  EXPECT_EQ(gpu_.calls.size(), before);
  EXPECT_EQ(ledger_entries(), 2u);
  clock_.advance(300ms);
  enforcer.collect();
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "A's";
  EXPECT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(2048));
  EXPECT_EQ(ledger_entries(), 1u);
  enforcer.undo_all();
}

// Its entry in the ledger goes when it is undone, and with it a freeze that was begun meanwhile.
TEST_F(LeftoversTest, WhatIsBeingUndoneIsNotFrozenAnewBefore) {
  const LedgerKey key{kA.pid, kA.start_ticks, 0, kHandlesA.client, kHandlesA.group};
  ASSERT_TRUE(ledger_.note_slice(key, 3, 2048));
  Nanos delay{};
  Enforcer enforcer(gpu_, ledger_, clock_, nullptr, late_lines(delay));
  const auto apply_to_a = [&](bool is_frozen) {
    enforcer.apply(0, std::vector{target(kA, is_frozen)});
    clock_.advance(100ms);
  };
  for (int i = 0; i < 3; ++i) apply_to_a(false);
  delay = 300ms;
  enforcer.undo_leftovers(processes_);
  for (int i = 0; i < 10; ++i) apply_to_a(true);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(ledger_entries(), 1u) << "what is frozen is listed";
  enforcer.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

// As while other programs hold the driver's lock.
TEST_F(LeftoversTest, NobodyWaitsForTheDriverToUndoWhatIsLeft) {
  const ChannelRef left{kHandlesA.client, kHandlesA.first_channel};
  const LedgerKey key{kA.pid, kA.start_ticks, 0, kHandlesA.client, kHandlesA.group};
  ASSERT_TRUE(ledger_.begin_freeze(key, 3, std::span(&left.channel, 1)));
  ASSERT_TRUE(ledger_.note_slice(key, 3, 2048));
  ASSERT_TRUE(gpu_.freeze(0, std::span(&left, 1)));
  const Nanos delay = 300ms;
  Enforcer enforcer(gpu_, ledger_, clock_, nullptr, late_lines(delay));
  const std::size_t before = gpu_.calls.size();
  for (int i = 0; i < 3; ++i) enforcer.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.calls.size(), before);
  EXPECT_EQ(ledger_entries(), 1u) << "it is listed until it is undone";
  clock_.advance(300ms);
  enforcer.collect();
  EXPECT_EQ(gpu_.calls.size(), before + 2) << "once";
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// Both the agent and its supervisor have died, and the GPU does not answer: nobody else lets it go
// on.
TEST_F(LeftoversTest, WhoWasStoppedGoesOnAlsoWhileItsGpuIsNotOpen) {
  const LedgerKey process{kA.pid, kA.start_ticks, 0, 0, 0};
  const LedgerKey group{kB.pid, kB.start_ticks, 0, kHandlesB.client, kHandlesB.group};
  const ChannelRef channel{kHandlesB.client, kHandlesB.first_channel};
  ASSERT_TRUE(ledger_.begin_freeze(process, -1, {}));
  ASSERT_TRUE(gpu_.stop(kA));
  ASSERT_TRUE(ledger_.begin_freeze(group, 3, std::span(&channel.channel, 1)));
  ASSERT_TRUE(gpu_.freeze(0, std::span(&channel, 1)));
  gpu_.closed[0] = "does not answer";
  Enforcer next(gpu_, ledger_, clock_, nullptr);
  next.undo_leftovers(processes_);
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(calls(Kind::kThaw), 0u);
  EXPECT_EQ(ledger_entries(), 1u) << "B's";
  gpu_.closed.clear();
  next.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(LeftoversTest, WhatIsForgottenAndCannotBeThawedIsTriedAgain) {
  apply({target(kA, true), target(kB, true)});
  refuse(Kind::kThaw, std::errc::too_many_files_open);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, true), target(kB, true)});
  enforcer_.forget(kB, 0);
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  EXPECT_EQ(ledger_entries(), 2u);
  for (int i = 0; i < 3; ++i) enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(ledger_entries(), 2u);
  gpu_.fault = nullptr;
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 0);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 15) << "not yet: with pauses";
  clock_.advance(1s);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 7);
  EXPECT_EQ(ledger_entries(), 1u);
}

TEST_F(LeftoversTest, AnEntryOfAProcessThatHasEndedGoesWithTheLastTry) {
  apply({target(kA, true)});
  refuse(Kind::kThaw, std::errc::io_error);
  enforcer_.forget(kA, 0);
  processes_.dead[kA.pid] = true;
  refuse(Kind::kThaw, std::errc::no_such_process);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(LeftoversTest, WhatAnAgentBeforeLeftIsUndoneBeforeTheProcessIsFrozenAgain) {
  const std::vector<uint32_t> channels{kHandlesA.first_channel, kHandlesA.first_channel + 1};
  const LedgerKey key{.pid = kA.pid,
                      .start_ticks = kA.start_ticks,
                      .gpu = 0,
                      .client = kHandlesA.client,
                      .group = kHandlesA.group};
  ASSERT_TRUE(ledger_.begin_freeze(key, 3, channels));
  for (const uint32_t channel : channels) {
    const ChannelRef ref{kHandlesA.client, channel};
    ASSERT_TRUE(gpu_.freeze(0, std::span(&ref, 1)));
  }
  Enforcer next(gpu_, ledger_, clock_, nullptr);
  const std::vector<Enforcer::Target> targets{target(kA, true)};
  next.apply(0, targets);
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, channels[0]}), 1) << "not twice";
  next.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  next.apply(0, targets);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  next.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// A child that inherited the descriptor has what its parent had: thawing for the parent, late, must
// not thaw what the child is frozen by.
TEST_F(LeftoversTest, WhatAnotherProcessHadIsUndoneBeforeItsHeirIsFrozen) {
  apply({target(kA, true), target(kB, false)});
  refuse(Kind::kThaw, std::errc::too_many_files_open);
  registry_.close(kA);
  enforcer_.forget(kA, 0);
  gpu_.fault = nullptr;
  for (const DriverEvent& one : program(kB, kHandlesA)) registry_.apply(one);
  apply({target(kB, true)});
  enforcer_.undo_leftovers(processes_);
  apply({target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel + i}), 1);
}

// Of an agent before us a changed slice alone is left, and the process is frozen by now.
TEST_F(LeftoversTest, WhatIsFrozenIsNotThawedWithASliceThatIsLeft) {
  const LedgerKey key{kA.pid, kA.start_ticks, 0, kHandlesA.client, kHandlesA.group};
  const LedgerKey other{kB.pid, kB.start_ticks, 0, kHandlesB.client, kHandlesB.group};
  ASSERT_TRUE(ledger_.note_slice(key, 3, 2000));
  Enforcer next(gpu_, ledger_, clock_, nullptr);
  const auto apply_to_both = [&](bool a, bool b) {
    next.apply(0, std::vector{target(kA, a), target(kB, b)});
  };
  refuse(Kind::kSetSlice);
  next.undo_leftovers(processes_);
  apply_to_both(true, false);
  gpu_.fault = nullptr;
  clock_.advance(1s);
  next.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(ledger_.freezes(key), 1u);
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xC86F}));
  apply_to_both(true, false);
  EXPECT_EQ(gpu_.frozen_channels(), 9) << "also what it makes later";
  apply_to_both(true, true);
  apply_to_both(false, true);
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(ledger_.freezes(other), 1u);
  next.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.slice_of(key.client, key.group), Micros(2000));
  EXPECT_EQ(ledger_entries(), 1u) << "B's";
  next.undo_all();
  EXPECT_EQ(ledger_entries(), 0u);
}

// A group was freed, and its channels' handles are those of another group of the client.
TEST_F(LeftoversTest, WhatHasTheHandlesOfAChannelThatIsThawedLateIsFrozenAgain) {
  apply({target(kA, true)});
  refuse(Kind::kThaw, std::errc::too_many_files_open);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  Handles second = kHandlesA;
  second.group = 0x12;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  apply({target(kA, true)});
  gpu_.fault = nullptr;
  std::vector<ChannelRef> freed;  // their freezes went with them
  for (uint32_t i = 0; i < kHandlesA.channels; ++i)
    freed.push_back({kHandlesA.client, kHandlesA.first_channel + i});
  ASSERT_TRUE(gpu_.thaw(0, freed));
  ASSERT_EQ(gpu_.freezes(freed[0]), 1);
  clock_.advance(1s);
  enforcer_.undo_leftovers(processes_);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

}  // namespace
}  // namespace gpushare
