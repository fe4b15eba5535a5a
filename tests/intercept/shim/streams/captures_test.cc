// SPDX-License-Identifier: Apache-2.0
// What a capture concerns beside its own stream: streams that are not used yet when it begins (the
// driver may let each new stream in a partition wait for what runs, so that none is made before it
// is needed), and what is put into the program's streams before and after it.
#include <vector>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

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
  captures_now = capturing.physical();
  legacy.end();
  {
    const StreamUse captured(stream, Flavor::kLegacy, Use::kLaunch);
  }
  captures_now = nullptr;
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
  captures_now = capturing.physical();
  destroy(ends);
  captures_now = nullptr;
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
