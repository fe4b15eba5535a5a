// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

using testing::ElementsAre;

constexpr FakeRm::Call kDisable{GS_NV_ESC_RM_CONTROL, GS_CTRL_DISABLE_CHANNELS};

class ChannelsTest : public NvrmTest {
 protected:
  void SetUp() override {
    NvrmTest::SetUp();
    std::tie(fd_, theirs_, context_) = rm_.make_program(kProgram, 0x5C000001, 40);
  }
  // The first `count` of the program's 160 channels.
  std::vector<ChannelRef> channels(size_t count) const {
    std::vector<ChannelRef> refs;
    for (size_t i = 0; i < count; ++i) refs.push_back({theirs_, context_.channels[i]});
    return refs;
  }
  std::vector<int> freezes(const std::vector<ChannelRef>& refs) const {
    std::vector<int> counts;
    for (const ChannelRef& ref : refs) counts.push_back(rm_.frozen(ref.client, ref.channel));
    return counts;
  }
  GroupRef compute_group() const { return {kProgram, fd_, theirs_, context_.groups[0]}; }

  int fd_ = -1;
  uint32_t theirs_ = 0;
  FakeRm::Context context_;
};

struct Split {
  const char* description;
  size_t channels;
  std::vector<uint32_t> calls;
};

TEST_F(ChannelsTest, ListsAreSplitToWhatOneCallTakes) {
  const Split rows[] = {
      {"none: no call", 0, {}},    {"one", 1, {1}},
      {"just full", 64, {64}},     {"one more", 65, {64, 1}},
      {"two full", 128, {64, 64}}, {"three", 130, {64, 64, 2}},
  };
  for (const Split& row : rows) {
    SCOPED_TRACE(row.description);
    const auto refs = channels(row.channels);
    rm_.disable_counts.clear();
    ASSERT_TRUE(freeze_channels(client(), 0, refs));
    EXPECT_EQ(rm_.disable_counts, row.calls);
    EXPECT_THAT(freezes(refs), testing::Each(1));
    ASSERT_TRUE(thaw_channels(client(), 0, refs));
    EXPECT_THAT(freezes(refs), testing::Each(0));
  }
}

TEST_F(ChannelsTest, AFreezeThatFailsHalfWayThawsWhatItFroze) {
  const auto refs = channels(130);
  for (size_t failing : {0u, 1u, 2u}) {
    rm_.forget_faults();
    rm_.fail_nth(failing, {.status = GS_NV_ERR_INVALID_STATE});
    auto done = freeze_channels(client(), 0, refs);
    ASSERT_FALSE(done);
    EXPECT_STREQ(done.error().step, "freeze channels");
    EXPECT_EQ(done.error().code, std::errc::io_error);
    EXPECT_THAT(freezes(refs), testing::Each(0)) << "call " << failing;
  }
}

// Channels that another process froze stay frozen.
TEST_F(ChannelsTest, AFailedFreezeUndoesOnlyItsOwn) {
  const auto refs = channels(130);
  ASSERT_TRUE(freeze_channels(client(), 0, refs));
  rm_.fail_nth(1, {.status = GS_NV_ERR_INVALID_STATE});
  ASSERT_FALSE(freeze_channels(client(), 0, refs));
  EXPECT_THAT(freezes(refs), testing::Each(1));
}

TEST_F(ChannelsTest, FreezingAChannelThatIsGoneSaysSo) {
  auto refs = channels(2);
  refs.push_back({theirs_, 0x5CFFFFFF});
  auto done = freeze_channels(client(), 0, refs);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, std::errc::no_such_process);
  EXPECT_THAT(freezes(refs), ElementsAre(0, 0, 0));
}

TEST_F(ChannelsTest, ChannelsOfOneGpuAreUnknownToTheOther) {
  const auto refs = channels(3);
  EXPECT_EQ(freeze_channels(client(), 1, refs).error().code, std::errc::no_such_process);
  EXPECT_THAT(freezes(refs), testing::Each(0));
}

TEST_F(ChannelsTest, AThawPassesOverChannelsThatAreGone) {
  auto refs = channels(100);
  ASSERT_TRUE(freeze_channels(client(), 0, refs));
  refs.insert(refs.begin() + 3, {theirs_, 0x5CFFFFFF});
  refs.insert(refs.begin() + 80, {0xC1D0FFFF, 1});
  EXPECT_TRUE(thaw_channels(client(), 0, refs));
  EXPECT_THAT(freezes(refs), testing::Each(0));
}

TEST_F(ChannelsTest, AThawOfADeadProgramIsNotAnError) {
  const auto refs = channels(70);
  ASSERT_TRUE(freeze_channels(client(), 0, refs));
  rm_.kill(kProgram.pid);
  EXPECT_TRUE(thaw_channels(client(), 0, refs));
}

// The first list fails, and so do two of its channels by themselves; the others are thawed.
TEST_F(ChannelsTest, AThawGoesOnAndReportsTheFirstRealError) {
  const auto refs = channels(70);
  ASSERT_TRUE(freeze_channels(client(), 0, refs));
  rm_.fail_nth(0, {.status = GS_NV_ERR_INVALID_STATE});
  rm_.fail_nth(1, {.status = GS_NV_ERR_INVALID_CHANNEL});  // gone: not an error
  rm_.fail_nth(2, {.status = GS_NV_ERR_NOT_SUPPORTED});
  rm_.fail_nth(3, {.status = GS_NV_ERR_INVALID_STATE});
  auto done = thaw_channels(client(), 0, refs);
  ASSERT_FALSE(done);
  EXPECT_STREQ(done.error().step, "thaw channels");
  EXPECT_EQ(done.error().code, std::errc::not_supported);
  auto counts = freezes(refs);
  EXPECT_THAT(std::span(counts).first(3), ElementsAre(1, 1, 1));
  EXPECT_THAT(std::span(counts).subspan(3), testing::Each(0));
}

TEST_F(ChannelsTest, ASystemErrorIsPassedOn) {
  rm_.fail_always(kDisable, {.error = EPERM});
  const auto refs = channels(1);
  EXPECT_EQ(freeze_channels(client(), 0, refs).error().code, std::errc::operation_not_permitted);
  EXPECT_EQ(thaw_channels(client(), 0, refs).error().code, std::errc::operation_not_permitted);
}

TEST_F(ChannelsTest, SlicesAreSetAndReadThroughTheOwnersDescriptor) {
  ASSERT_TRUE(set_group_slice(client(), compute_group(), Micros(5000)));
  EXPECT_EQ((rm_.slices_us[{theirs_, context_.groups[0]}]), 5000u);
  auto read = group_slice(client(), compute_group());
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, Micros(5000));
  // A call through our own descriptor is refused, so the calls above did not use it.
  gs_timeslice slice{1};
  auto foreign = rm_control(rm_, client().fd(), theirs_, context_.groups[0], GS_CTRL_SET_TIMESLICE,
                            slice, "set");
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().detail, "driver status 0x23");
}

// By dup() and close(), and another file may be under the old number.
TEST_F(ChannelsTest, SlicesAreSetThoughTheProgramHasMovedItsDescriptor) {
  rm_.share(kProgram, fd_, kProgram, fd_ + 100);
  rm_.close_in(kProgram.pid, fd_);
  EXPECT_TRUE(set_group_slice(client(), compute_group(), Micros(5000)));
  EXPECT_EQ((rm_.slices_us[{theirs_, context_.groups[0]}]), 5000u);
  const int other = rm_.open_control(kProgram);
  rm_.share(kProgram, other, kProgram, fd_);
  EXPECT_TRUE(set_group_slice(client(), compute_group(), Micros(6000)));
  EXPECT_EQ((rm_.slices_us[{theirs_, context_.groups[0]}]), 6000u);
  rm_.close_in(kProgram.pid, fd_ + 100);
  EXPECT_FALSE(set_group_slice(client(), compute_group(), Micros(7000))) << "nobody here has it";
}

TEST_F(ChannelsTest, SlicesOfADeadProgramSayNoSuchProcess) {
  rm_.kill(kProgram.pid);
  EXPECT_EQ(set_group_slice(client(), compute_group(), Micros(1)).error().code,
            std::errc::no_such_process);
  EXPECT_EQ(group_slice(client(), compute_group()).error().code, std::errc::no_such_process);
}

// Another program has the pid by now, and its group has the same descriptor number.
TEST_F(ChannelsTest, SlicesAreNotSetInAProgramThatReusedThePid) {
  const GroupRef stale = compute_group();
  rm_.kill(kProgram.pid);
  rm_.open_control({kProgram.pid, kProgram.start_ticks + 1});
  EXPECT_EQ(set_group_slice(client(), stale, Micros(1)).error().code, std::errc::no_such_process);
}

TEST_F(ChannelsTest, ARefusedSliceSaysNotPermitted) {
  rm_.fail_always({GS_NV_ESC_RM_CONTROL, GS_CTRL_SET_TIMESLICE},
                  {.status = GS_NV_ERR_INSUFFICIENT_PERMISSIONS});
  auto done = set_group_slice(client(), compute_group(), Micros(1000));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, std::errc::operation_not_permitted);
  EXPECT_STREQ(done.error().step, "set time slice");
  EXPECT_EQ((rm_.slices_us[{theirs_, context_.groups[0]}]), 2048u);
}

}  // namespace
}  // namespace gpushare::nvrm
