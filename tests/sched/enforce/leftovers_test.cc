// SPDX-License-Identifier: Apache-2.0
// What is not followed any more is undone first, and what cannot be undone is tried again.
#include "sched/enforce/leftovers.h"

#include <gtest/gtest.h>

#include "tests/sched/enforce/enforcer_rig.h"

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

}  // namespace
}  // namespace gpushare
