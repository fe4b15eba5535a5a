// SPDX-License-Identifier: Apache-2.0
// Whether a program is in the partition that is wanted for it, and what its slot says of that.
#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

using Place = Partitions::Place;

// An agent that dies and comes back, or its successor, gives the process another slot.
TEST_F(StreamsTest, ANewSlotIsAnsweredAlsoWhenItWantsTheSame) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
  const std::unique_ptr<ShimSlot> next = std::make_unique<ShimSlot>();
  next->head.gpu_count = 2;  // it numbers them anew
  next->gpus[0].pci[0] = 'y';
  next->gpus[1].pci[0] = 'x';
  next->gpus[1].wanted = 1;
  the_process.slot = next.get();
  streams().look_up();
  launch(stream);
  EXPECT_EQ(next->gpus[1].applied, 1u);
  EXPECT_EQ(next->gpus[0].applied, 0u);
  the_process.slot = slot_.get();
}

TEST_F(StreamsTest, AGpuThatTheNewSlotLacksIsTheProgramsAsAWhole) {
  const CUstream stream = new_stream(), idle = new_stream();
  move_to(1);
  for (const CUstream each : {stream, idle}) launch(each);
  const std::unique_ptr<ShimSlot> next = std::make_unique<ShimSlot>();
  next->head.gpu_count = 1;
  next->gpus[0].pci[0] = 'y';
  next->gpus[0].wanted = 2;
  the_process.slot = next.get();
  streams().look_up();
  EXPECT_EQ(streams().find(idle, Flavor::kLegacy)->place, 0) << "without a launch";
  {
    Call call(*this, stream);
    EXPECT_FALSE(call.is_away());
  }
  EXPECT_EQ(next->gpus[0].applied, 0u);
  EXPECT_EQ(next->gpus[0].follows, ShimFollows::kUnknown);
  next->gpus[1].pci[0] = 'x';  // it is shared after all
  next->gpus[1].wanted = 1;
  next->head.gpu_count = 2;
  streams().look_up();
  launch(stream);
  EXPECT_EQ(next->gpus[1].applied, 1u);
  the_process.slot = slot_.get();
}

// The agent has opened it late, and adds it to the slots that are there.
TEST_F(StreamsTest, AGpuThatJoinsLaterIsFound) {
  start_over();
  slot_->head.gpu_count = 0;
  streams().before_release(0, false);
  streams().on_retained(0, kContext);
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  streams().look_up();
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  slot_->head.gpu_count = 1;
  streams().look_up();
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// Beside another thread whose stream is never empty, so that there is no rest.
TEST_F(StreamsTest, AStreamThatLacksItsStandInKeepsNoPartitionFromBeingMade) {
  const CUstream busy = new_stream();
  visit({{1}}, {{busy}});
  the_gpu->is_busy = [] { return true; };
  launch(busy);
  int held = 0;
  const auto goes = [&] {
    const CUstream stream = new_stream(false);
    const uint64_t begin = the_time;
    const Call call(*this, stream);
    held += the_time - begin >= Drain::kLeastPatienceNs;
    return call.is_away();
  };
  int away = 0;
  while (away < 100 && goes()) ++away;
  EXPECT_EQ(away, Device::kSpares);
  EXPECT_EQ(held, 1) << "the last one, for which nothing is made while others run";
  EXPECT_EQ(slot_->gpus[0].wanted, slot_->gpus[0].applied);
  // A rest that never came for it keeps no partition from being made.
  the_gpu->is_busy = {};
  move_to(2);
  launch(busy);
  EXPECT_EQ(slot_->gpus[0].applied, 2u);
  EXPECT_TRUE(goes());
}

TEST_F(StreamsTest, LaunchesOutsideAWantedPartitionAreCounted) {
  const CUstream stream = new_stream();
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 0u);
  streams().count_other_contexts(1);  // so that none can be made
  move_to(1);
  launch(stream);
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 2u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  streams().count_other_contexts(-1);
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 2u);
}

// It may last for minutes, in which each launch would take the lock and ask the driver.
TEST_F(StreamsTest, WhatIsInTheWayIsAskedForOnceInAWhile) {
  const CUstream stream = new_stream();
  launch(stream);
  streams().count_other_contexts(1);
  move_to(1);
  launch(stream);
  the_step_ns = 1000;
  launch(stream);
  const size_t before = mode_changes;
  for (int i = 0; i < 100; ++i) launch(stream);
  EXPECT_EQ(mode_changes, before);
  the_time += Streams::kHinderedNs;
  launch(stream);
  EXPECT_GT(mode_changes, before);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  streams().count_other_contexts(-1);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "at once when nothing is in the way";
  // A kernel that waits for the host.
  the_step_ns = kUsualStepNs;
  the_gpu->is_busy = [] { return true; };
  move_to(2);
  launch(stream);
  ASSERT_EQ(slot_->gpus[0].follows, ShimFollows::kPauses);
  the_step_ns = 1000;
  launch(stream);
  move_to(0);
  const Call call(*this, stream);
  EXPECT_FALSE(call.is_away()) << "at once to where it can go";
  the_gpu->is_busy = {};
}

// PyCUDA and others have no primary context at all, or give it back.
TEST_F(StreamsTest, AProgramWithContextsOfItsOwnAloneIsInNoPartitionAndSaysWhy) {
  launch_in_partition();
  streams().before_release(0, false);
  streams().count_other_contexts(1);
  current_context = reinterpret_cast<CUcontext>(uintptr_t{0x501});
  const CUstream own = new_stream();
  launch(own);
  launch(kLegacy);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  EXPECT_EQ(slot_->home_launches[0], 2u);
  current_context = kContext;
}

// The context that was in the partition is gone, and nothing can be made in the next one.
TEST_F(StreamsTest, ANewContextIsNotWhereTheOneBeforeWas) {
  launch_in_partition();
  streams().before_release(0, true);
  streams().count_other_contexts(1);
  streams().on_retained(0, kContext);
  launch(new_stream());
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
}

// What runs where the stream was before is not there.
TEST_F(StreamsTest, ItIsInThePartitionWhenNothingRunsElsewhere) {
  const CUstream stream = new_stream(), other = new_stream();
  visit(kThereAndHome, {{stream, other}});
  the_gpu->is_busy = [] { return true; };
  move_to(1);
  launch(stream);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWorkRemains);
  the_gpu->is_busy = {};
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "the other one is empty, and has gone without a launch";
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kFollows);
}

// The stream itself cannot be asked any more.
TEST_F(StreamsTest, ItIsNotInThePartitionWhileADestroyedStreamsWorkRunsElsewhere) {
  for (const bool has_moved : {false, true}) {
    start_over();
    const CUstream stays = new_stream(false), ends = new_stream(false);
    visit(kThereAndHome, {{stays, ends}});
    the_gpu->running.add(launch(ends));
    if (has_moved) {
      move_to(1);
      launch(ends);  // and waits there
      EXPECT_EQ(slot_->gpus[0].applied, 0u);
    }
    destroy(ends);
    move_to(1);
    launch(stays);
    launch(stays);
    EXPECT_EQ(slot_->gpus[0].applied, 0u) << has_moved;
    EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWorkRemains) << has_moved;
    the_gpu->running = {};
    launch(stays);
    EXPECT_EQ(slot_->gpus[0].applied, 1u) << has_moved;
  }
}

TEST_F(StreamsTest, WhatADestroyedStreamHasLeftInThePartitionIsThere) {
  const CUstream stays = new_stream(false), ends = new_stream(false);
  visit(kThereAndHome, {{stays, ends}});
  move_to(1);
  launch(stays);
  the_gpu->running.add(launch(ends));
  destroy(ends);
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
  move_to(0);
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "and not where the process is to be now";
  the_gpu->running = {};
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
}

TEST_F(StreamsTest, APartitionWhereADestroyedStreamsWorkRunsStays) {
  const CUstream stays = new_stream(false), ends = new_stream(false);
  Device& device = *streams().find(stays, Flavor::kLegacy)->device;
  for (uint64_t groups = 1; groups <= Partitions::kMost; ++groups) {
    move_to(groups);
    for (const CUstream stream : {stays, ends}) launch(stream);
  }
  move_to(1);
  launch(ends);
  the_gpu->running.add(launch(ends));
  const Place place = streams().find(ends, Flavor::kLegacy)->place;
  const CUcontext context = streams().context_of(device, place);
  ASSERT_NE(context, nullptr);
  destroy(ends);
  move_to(2);
  for (int i = 0; i < 40; ++i) launch(stays);
  move_to(Partitions::kMost + 1);
  for (int i = 0; i < 40; ++i) launch(stays);
  EXPECT_EQ(streams().context_of(device, place), context);
  the_gpu->running = {};
  for (int i = 0; i < 40; ++i) launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, Partitions::kMost + 1u);
}

// It may have functions that put work into a stream and that the shim does not know.
TEST_F(StreamsTest, WithADriverThatIsNewerThanTheTableNothingMoves) {
  driver_version = kNewestKnown + 10;
  expect_none_leaves(ShimFollows::kNewerDriver);
  driver_version = kNewestKnown;
}

}  // namespace
}  // namespace gpushare::shim
