// SPDX-License-Identifier: Apache-2.0
// Time slices: only what differs is set, the former one comes back, and what is furthest from its
// target comes first.
#include "sched/enforce/slices.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/sched/enforce/enforcer_rig.h"

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

}  // namespace
}  // namespace gpushare
