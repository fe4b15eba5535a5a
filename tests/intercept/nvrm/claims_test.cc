// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/claims.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ProcessId kVictim{500, 77}, kForger{600, 88};

class ClaimsTest : public NvrmTest {
 protected:
  void SetUp() override {
    NvrmTest::SetUp();
    std::tie(fd_, theirs_, context_) = rm_.make_program(kVictim, kFirstObject);
    std::tie(forger_fd_, forgers_, forged_context_) = rm_.make_program(kForger, kFirstObject);
  }

  template <class What>
  bool is_taken(const ProcessId& process, int fd, What what) {
    const std::size_t before = passed_.size();
    claims_.examine({now_, process, std::move(what)}, fd, sink_);
    return passed_.size() > before;
  }
  // What a program says of one context.
  int claim(const ProcessId& process, int fd, const FakeRm::Context& context, uint32_t client) {
    int taken = is_taken(process, fd, ClientCreated{client, fd});
    taken += is_taken(process, fd, DeviceCreated{client, context.device, 1});
    taken +=
        is_taken(process, fd,
                 GroupCreated{client, context.device, context.groups[0], Engine::kGraphics, fd});
    taken += is_taken(process, fd,
                      ChannelCreated{client, context.groups[0], context.channels[0], 0xC86F});
    taken += is_taken(process, fd, MemoryAllocated{client, context.device, 0x99, 1 << 20, true});
    return taken;
  }
  // The processes that are to be looked at again.
  std::vector<ProcessId> to_look_at() {
    passed_.clear();
    claims_.rest(sink_);
    std::vector<ProcessId> processes;
    for (const DriverEvent& event : passed_) {
      EXPECT_TRUE(std::holds_alternative<EventsLost>(event.what));
      processes.push_back(event.process);
    }
    return processes;
  }

  int fd_ = -1, forger_fd_ = -1;
  uint32_t theirs_ = 0, forgers_ = 0;
  FakeRm::Context context_, forged_context_;
  Time now_{100s};
  std::vector<DriverEvent> passed_;
  const Observer::Sink sink_ = [this](DriverEvent&& event) { passed_.push_back(std::move(event)); };
  Claims claims_{rm_};
};

TEST_F(ClaimsTest, WhatRmConfirmsIsPassedOn) {
  EXPECT_EQ(claim(kVictim, fd_, context_, theirs_), 5);
  EXPECT_EQ(claim(kForger, forger_fd_, forged_context_, forgers_), 5) << "its own";
  EXPECT_EQ(claims_.false_claims().count, 0u);
  EXPECT_THAT(to_look_at(), IsEmpty());
}

TEST_F(ClaimsTest, AnothersClientIsRefusedAndCounted) {
  claim(kVictim, fd_, context_, theirs_);
  EXPECT_EQ(claim(kForger, forger_fd_, context_, theirs_), 0);
  EXPECT_EQ(claims_.false_claims().count, 5u);
  EXPECT_EQ(claims_.false_claims().last, kForger);
  EXPECT_THAT(to_look_at(), testing::ElementsAre(kForger));
}

// Client handles are counted up, so the next ones can be guessed.
TEST_F(ClaimsTest, AClientThatIsClaimedAheadIsStillItsMakers) {
  EXPECT_EQ(claim(kForger, forger_fd_, context_, theirs_), 0) << "nobody was seen to have it";
  EXPECT_EQ(claim(kVictim, fd_, context_, theirs_), 5);
}

TEST_F(ClaimsTest, AForkedChildThatHasTheDescriptorIsNotTheOwnerAndNoForger) {
  claim(kVictim, fd_, context_, theirs_);
  const ProcessId child{501, 79};
  rm_.share(kVictim, fd_, child);
  passed_.clear();
  claim(child, fd_, context_, theirs_);
  for (const DriverEvent& event : passed_) EXPECT_EQ(event.process, kVictim);
  EXPECT_EQ(claims_.false_claims().count, 0u);
  EXPECT_THAT(to_look_at(), IsEmpty());
  claims_.examine({now_, kVictim, ProcessClosed{}}, -1, sink_);
  EXPECT_EQ(claim(child, fd_, context_, theirs_), 5) << "it has it alone now";
}

// Otherwise a program would fork, have the child make channels in its client, and run on channels
// that nobody freezes.
TEST_F(ClaimsTest, WhatAForkedChildMakesInItsParentsClientIsTheParents) {
  claim(kVictim, fd_, context_, theirs_);
  const ProcessId child{501, 79};
  constexpr int kChildsFd = 40;  // by dup()
  rm_.share(kVictim, fd_, child, kChildsFd);
  const FakeRm::Context more = rm_.make_context(theirs_, 0, kFirstObject + 1000);
  passed_.clear();
  EXPECT_EQ(claim(child, kChildsFd, more, theirs_), 5);
  for (const DriverEvent& event : passed_) {
    EXPECT_EQ(event.process, kVictim);
    if (const auto* group = std::get_if<GroupCreated>(&event.what)) {
      EXPECT_EQ(group->fd, fd_) << "by which the agent sets its slice";
    }
  }
  EXPECT_FALSE(is_taken(child, kChildsFd, ObjectFreed{theirs_, more.groups[0]})) << "it is there";
  EXPECT_FALSE(is_taken(child, kChildsFd, ChannelCreated{theirs_, 0x777, 0x778, 0xC86F}))
      << "there is none";
  EXPECT_EQ(claims_.false_claims().count, 0u);
}

TEST_F(ClaimsTest, AnOwnerThatHasLostItsClientMakesWay) {
  claim(kForger, forger_fd_, forged_context_, forgers_);
  (void)to_look_at();
  rm_.close_in(kForger.pid, forger_fd_);
  const int fd = rm_.open_control(kVictim);
  rm_.hand_over(forgers_, kVictim, fd);  // RM uses the number again
  EXPECT_EQ(claim(kVictim, fd, forged_context_, forgers_), 5);
}

TEST_F(ClaimsTest, ObjectsAreWhatRmSaysTheyAre) {
  claim(kVictim, fd_, context_, theirs_);
  const uint32_t compute = context_.groups[0], copies = context_.groups[1];
  EXPECT_FALSE(
      is_taken(kVictim, fd_, ChannelCreated{theirs_, copies, context_.channels[0], 0xC86F}))
      << "of another group";
  EXPECT_FALSE(
      is_taken(kVictim, fd_, ChannelCreated{theirs_, compute, context_.channels[0], 0xCA6F}))
      << "of another class";
  EXPECT_FALSE(is_taken(kVictim, fd_, GroupCreated{theirs_, 0x777, compute, Engine::kCopy, fd_}))
      << "on another device";
  EXPECT_FALSE(is_taken(kVictim, fd_, ChannelCreated{theirs_, compute, 0x12345, 0xC86F}))
      << "that is not there";
  EXPECT_EQ(claims_.false_claims().count, 0u) << "it is its own";
  EXPECT_THAT(to_look_at(), testing::ElementsAre(kVictim));
}

TEST_F(ClaimsTest, WhatIsSaidToBeFreedAndIsThereStays) {
  claim(kVictim, fd_, context_, theirs_);
  const uint32_t group = context_.groups[0], channel = context_.channels[0];
  EXPECT_FALSE(is_taken(kVictim, fd_, ObjectFreed{theirs_, group}));
  EXPECT_FALSE(is_taken(kVictim, fd_, ObjectFreed{theirs_, theirs_}));
  EXPECT_FALSE(is_taken(kForger, forger_fd_, ObjectFreed{theirs_, group})) << "another's";
  EXPECT_THAT(to_look_at(), testing::UnorderedElementsAre(kVictim, kForger));
  // It was freed after all, and the handle used again before RM could be asked.
  passed_.clear();
  EXPECT_FALSE(is_taken(kVictim, fd_, ObjectFreed{theirs_, channel}));
  EXPECT_TRUE(is_taken(kVictim, fd_, ChannelCreated{theirs_, group, channel, 0xC86F}));
  ASSERT_THAT(passed_, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<ObjectFreed>(passed_[0].what));
  EXPECT_TRUE(is_taken(kVictim, fd_, ObjectFreed{theirs_, 0x12345})) << "gone indeed";
}

TEST_F(ClaimsTest, ADescriptorOfAnotherFileProvesNothing) {
  const int other = rm_.open_control(kVictim);
  EXPECT_EQ(claim(kVictim, other, context_, theirs_), 0);
  rm_.close_in(kVictim.pid, other);
  (void)to_look_at();
  EXPECT_EQ(claim(kVictim, other, context_, theirs_), 0) << "closed";
  EXPECT_THAT(to_look_at(), testing::ElementsAre(kVictim));
}

TEST_F(ClaimsTest, WhereNobodyMayCopyDescriptorsAllIsBelieved) {
  rm_.fetching = std::errc::operation_not_permitted;
  EXPECT_EQ(claim(kVictim, fd_, context_, theirs_), 5);
}

TEST_F(ClaimsTest, AForgerCostsAFewQuestionsASecond) {
  claim(kVictim, fd_, context_, theirs_);
  rm_.calls.clear();
  for (int i = 0; i < 10'000; ++i) claim(kForger, forger_fd_, context_, theirs_);
  EXPECT_LE(rm_.calls.size(), 8 * Claims::kMostDoubts) << "half of them of contexts";
  EXPECT_THAT(to_look_at(), testing::ElementsAre(kForger));
  EXPECT_EQ(claim(kForger, forger_fd_, forged_context_, forgers_), 0) << "not now";
  now_ += 1s;
  EXPECT_EQ(claim(kForger, forger_fd_, forged_context_, forgers_), 5);
}

// Whoever makes and frees devices without an end makes the agent doubt what it says, and would hide
// a context among them.
TEST_F(ClaimsTest, AFloodHidesNoContext) {
  claim(kVictim, fd_, context_, theirs_);
  const FakeRm::Context more = rm_.make_context(theirs_, 0, kFirstObject + 1000);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(is_taken(kVictim, fd_, DeviceCreated{theirs_, 0x777, 1})) << "it is freed";
    EXPECT_FALSE(is_taken(kVictim, fd_, ObjectFreed{theirs_, more.device})) << "it is there";
  }
  EXPECT_TRUE(is_taken(kVictim, fd_,
                       GroupCreated{theirs_, more.device, more.groups[0], Engine::kGraphics, fd_}));
  EXPECT_TRUE(
      is_taken(kVictim, fd_, ChannelCreated{theirs_, more.groups[0], more.channels[0], 0xC86F}));
}

TEST_F(ClaimsTest, WhatIsDoneToOthersIsPassedOnEvenFromAForger) {
  claim(kVictim, fd_, context_, theirs_);
  for (int i = 0; i < 100; ++i) claim(kForger, forger_fd_, context_, theirs_);
  EXPECT_TRUE(is_taken(kForger, forger_fd_,
                       ControlMade{theirs_, context_.groups[0], GS_CTRL_SET_TIMESLICE, 0, 1}));
  EXPECT_TRUE(
      is_taken(kForger, forger_fd_, ChannelsSwitched{true, {{theirs_, context_.channels[0]}}}));
}

TEST_F(ClaimsTest, NoCopyOfADescriptorOutlivesTheRest) {
  claim(kVictim, fd_, context_, theirs_);
  const int before = rm_.copies();
  EXPECT_GT(before, 0);
  (void)to_look_at();
  EXPECT_EQ(rm_.copies(), 0);
}

}  // namespace
}  // namespace gpushare::nvrm
