// SPDX-License-Identifier: Apache-2.0
// Streams that capture, and those that join them, stay where they are, and all others go on moving.
#include <bit>
#include <vector>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

// A stream that captures ends with its context, so that its capture does, too.
TEST_F(StreamsTest, ACaptureInAContextThatIsGoneIsOver) {
  const CUstream stream = new_stream();
  launch(stream);
  streams().begin_capture(*streams().find(stream, Flavor::kLegacy));
  EXPECT_TRUE(streams().is_any_capturing());
  streams().before_release(0, true);
  EXPECT_FALSE(streams().is_any_capturing());
  the_gpu->destroy(stream);
  streams().on_retained(0, kContext);
  launch_in_partition();
}

// A stream that another thread uses while the capture begins stays where it is. It goes when it
// waits for an event of the capture, and so joins it, but not for another event.
TEST_F(StreamsTest, AStreamThatJoinsACaptureIsWhereItIs) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  const CUevent captured = the_gpu->new_event(), other = the_gpu->new_event();
  visit(kSets, std::array{captures, joins});
  for (const uint64_t groups : {1, 2}) {  // the first is where the process captures from now on
    move_to(groups);
    for (const CUstream stream : {captures, joins}) launch(stream);
    {
      Call call(*this, joins);
      call.put();
      streams().before_capture(capturing);
    }
    streams().begin_capture(capturing);
    ASSERT_TRUE(streams().is_at_captures(capturing)) << groups;
    ASSERT_EQ(streams().is_at_captures(joining), groups == 1);
    streams().note_recorded(nullptr, captured);
    streams().before_joining(joining, other);
    EXPECT_EQ(streams().is_at_captures(joining), groups == 1);
    streams().before_joining(joining, captured);
    EXPECT_TRUE(streams().is_at_captures(joining)) << groups;
    streams().end_capture(capturing);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// A kernel that is too large for the partition. It would run at once, beside the graph.
TEST_F(StreamsTest, WhatIsRefusedInACaptureThatIsInvalidRunsNowhere) {
  const CUstream stream = new_stream(false);
  visit(kSets, {{stream}});
  StreamUse use(stream, Flavor::kLegacy, Use::kLaunch);
  ASSERT_TRUE(use.is_away());
  int launches = 0;
  const auto launch_there = [&](CUstream there) {
    EXPECT_EQ(there, stream);
    ++launches;
    return CUDA_SUCCESS;
  };
  streams().begin_capture(*use.stream());
  record_answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  EXPECT_EQ(use.at_home(launch_there, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  record_answer = CUDA_SUCCESS;
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(slot_->home_launches[0], 0u);
  EXPECT_EQ(use.at_home(launch_there, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), CUDA_SUCCESS)
      << "in a capture that goes on home joins it";
  EXPECT_EQ(launches, 1);
}

// The driver refuses a graph whose conditional node is of another context than what it runs.
TEST_F(StreamsTest, AConditionIsOfTheContextWhereItsGraphIsCaptured) {
  EXPECT_EQ(streams().context_for_condition(kContext), kContext);
  const auto other = reinterpret_cast<CUcontext>(uintptr_t{0x999});
  start_over();
  const CUstream stream = new_stream(false);
  visit(kSets, {{stream}});
  Stream& known = *streams().find(stream, Flavor::kLegacy);
  streams().before_capture(known);
  streams().begin_capture(known);
  EXPECT_EQ(streams().context_for_condition(other), other) << "of the program's own";
  const CUcontext there = streams().context_for_condition(kContext);
  EXPECT_NE(there, kContext);
  EXPECT_EQ(streams().context_for_condition(nullptr), there);
  streams().end_capture(known);
  EXPECT_EQ(streams().context_for_condition(kContext), kContext) << "built by hand";
  streams().before_capture(known);
  EXPECT_EQ(known.place, 0) << "what it runs is captured in the same context";
}

// `joining` waits for an event that was recorded in the capture.
void capture_with(Streams& all, Stream& capturing, Stream& joining) {
  all.before_capture(capturing);
  all.begin_capture(capturing);
  const CUevent captured = the_gpu->new_event();
  all.note_recorded(nullptr, captured);
  all.before_joining(joining, captured);
  all.end_capture(capturing);
}

// Only the partitions where it captures are kept for its graphs, not each in which some stream is.
TEST_F(StreamsTest, AProgramThatCapturesGoesOnFollowing) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  for (uint64_t groups = 1; groups <= 2 * Partitions::kMost; ++groups) {
    move_to(groups);
    for (int i = 0; i < 50 && slot_->gpus[0].applied != groups; ++i)
      for (const CUstream stream : {kLegacy, captures, joins}) launch(stream);
    ASSERT_EQ(slot_->gpus[0].applied, groups);
    capture_with(streams(), capturing, joining);
  }
}

// A stream that another thread uses all the time stays where it is, and so do its kernels.
TEST_F(StreamsTest, APartitionWhoseStreamHasJoinedACaptureIsKept) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  visit(kSets, std::array{captures, joins});
  move_to(1);
  launch(captures);
  streams().before_capture(capturing);
  move_to(2);
  launch(joins);
  {
    Call call(*this, joins);
    call.put();
    capture_with(streams(), capturing, joining);
  }
  const uint32_t both = joining.device->captured;
  EXPECT_EQ(std::popcount(both), 2);
  EXPECT_NE(both >> joining.place & 1, 0u);
  EXPECT_NE(both >> capturing.place & 1, 0u);
}

// More than are remembered, of which none is taken for one that is not of a capture.
TEST_F(StreamsTest, AStreamThatJoinsByOneOfManyEventsIsWhereTheCaptureIs) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  visit(kSets, std::array{captures, joins});
  streams().before_capture(capturing);
  move_to(1);
  for (const CUstream stream : {captures, joins}) launch(stream);
  {
    Call call(*this, joins);
    call.put();
    streams().before_capture(capturing);
  }
  streams().begin_capture(capturing);
  ASSERT_FALSE(streams().is_at_captures(joining));
  CUevent last = nullptr;
  for (uint32_t i = 0; i < 2 * Streams::kMostCapturedEvents; ++i)
    streams().note_recorded(nullptr, last = the_gpu->new_event());
  streams().before_joining(joining, last);
  EXPECT_TRUE(streams().is_at_captures(joining));
}

// That may last, and says nothing of how long the work in line does.
TEST_F(StreamsTest, ALaunchThatIsHeldGoesOnWhenAnotherThreadCaptures) {
  const CUstream stream = new_stream(), captures = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  for (const CUstream each : {stream, captures}) launch(each);
  int looks = 0;
  the_gpu->is_busy = [&] {
    if (++looks == 10) streams().begin_capture(capturing);
    return true;
  };
  move_to(1);
  const uint64_t begin = the_time;
  launch(stream);
  EXPECT_GE(looks, 10) << "it was held";
  EXPECT_LT(the_time - begin, Drain::kLeastPatienceNs);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWaitsForRest) << "and does not pause";
  streams().end_capture(capturing);
  the_gpu->is_busy = {};
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// Streams that are not used yet when a capture begins: the driver may let each new stream in a
// partition wait for what runs, so that none is made before it is needed.
class UnusedStreamsTest : public StreamsTest {
 protected:
  // A stream in a partition, where it captures, and more streams than there are spare stand-ins.
  UnusedStreamsTest() {
    const CUstream captures = new_stream(false);
    visit({{1}}, {{captures}});
    for (int i = 0; i < 2 * Device::kSpares; ++i) unused_.push_back(new_stream(false));
    capturing_ = streams().find(captures, Flavor::kLegacy);
    created_ = the_gpu->created();
    streams().before_capture(*capturing_);
    streams().begin_capture(*capturing_);
  }
  ~UnusedStreamsTest() override { streams().end_capture(*capturing_); }

  Stream& unused(size_t i) { return *streams().find(unused_[i], Flavor::kLegacy); }

  std::vector<CUstream> unused_;
  Stream* capturing_ = nullptr;
  size_t created_ = 0;  // streams before the capture began
};

TEST_F(UnusedStreamsTest, HaveNoStandInMadeWhenACaptureBegins) {
  EXPECT_TRUE(streams().is_at_captures(*capturing_));
  EXPECT_NE(capturing_->place, 0);
  EXPECT_EQ(the_gpu->created(), created_);
  for (size_t i = 0; i < unused_.size(); ++i) EXPECT_EQ(unused(i).place, 0) << i;
}

TEST_F(UnusedStreamsTest, GoWhenTheyJoinAndNotForAnotherEvent) {
  const CUevent captured = the_gpu->new_event(), other = the_gpu->new_event();
  streams().note_recorded(nullptr, captured);
  streams().before_joining(unused(0), other);
  EXPECT_EQ(unused(0).place, 0);
  for (size_t i = 0; i < unused_.size(); ++i) {
    streams().before_joining(unused(i), captured);
    EXPECT_TRUE(streams().is_at_captures(unused(i))) << i;
  }
  EXPECT_EQ(the_gpu->created(), created_ + unused_.size() - Device::kSpares);
}

// The call of the legacy stream ends only after the capture has begun. What is captured waits for
// nothing; what the stream runs after the capture does.
TEST_F(StreamsTest, AfterItsCaptureAStreamWaitsForLegacyWorkOfBefore) {
  const CUstream stream = new_stream();
  visit({{1}}, {{kLegacy, stream}});
  Stream& capturing = *streams().find(stream, Flavor::kLegacy);
  Call legacy(*this, kLegacy, Use::kOperation);
  legacy.put();
  streams().before_capture(capturing);
  streams().begin_capture(capturing);
  the_gpu->begin_capture(capturing.physical());
  legacy.end();
  {
    const StreamUse captured(stream, Flavor::kLegacy, Use::kLaunch);
  }
  the_gpu->end_capture(capturing.physical());
  streams().end_capture(capturing);
  EXPECT_TRUE(is_first(legacy.number(), launch(stream)));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

TEST_F(StreamsTest, ItIsNotInThePartitionWhileAStreamsWorkRunsThatWasDestroyedBesideACapture) {
  const CUstream stays = new_stream(false), ends = new_stream(false), captures = new_stream(false);
  visit(kThereAndHome, {{stays, ends, captures}});
  the_gpu->running.add(launch(ends));
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  streams().begin_capture(capturing);
  the_gpu->begin_capture(capturing.physical());
  destroy(ends);
  the_gpu->end_capture(capturing.physical());
  streams().end_capture(capturing);
  move_to(1);
  for (int i = 0; i < 3; ++i) launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWorkRemains);
  the_gpu->running = {};
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

}  // namespace
}  // namespace gpushare::shim
