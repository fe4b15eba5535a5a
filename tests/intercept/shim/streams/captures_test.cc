// SPDX-License-Identifier: Apache-2.0
// Streams that are not used yet when a capture begins: the driver may let each new stream in a
// partition wait for what runs, so that none is made before it is needed.
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

}  // namespace
}  // namespace gpushare::shim
