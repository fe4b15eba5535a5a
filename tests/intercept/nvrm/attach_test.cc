// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

template <class What>
std::vector<What> all_of(const std::vector<DriverEvent>& events) {
  std::vector<What> found;
  for (const DriverEvent& event : events)
    if (const auto* what = std::get_if<What>(&event.what)) found.push_back(*what);
  return found;
}

class AttachTest : public NvrmTest {
 protected:
  std::vector<DriverEvent> attach(ProcessId process = kProgram, std::vector<ObjectRef> known = {}) {
    rm_.calls.clear();
    const auto search = find_objects(client(), process, known, learnt_);
    auto events = search->finish();
    is_complete_ = search->is_complete();
    EXPECT_TRUE(events) << events.error().message();
    return events ? std::move(*events) : std::vector<DriverEvent>{};
  }

  Learnt learnt_;
  bool is_complete_ = false;  // the last search
};

void expect_context(const std::vector<DriverEvent>& events, const FakeRm::Context& context, int fd,
                    uint32_t instance) {
  uint32_t devices = 0;
  for (const auto& device : all_of<DeviceCreated>(events))
    if (device.client == context.client && device.device == context.device) {
      EXPECT_EQ(device.instance, instance);
      ++devices;
    }
  EXPECT_EQ(devices, 1u);
  std::vector<uint32_t> groups, channels;
  for (const auto& group : all_of<GroupCreated>(events))
    if (group.client == context.client && group.device == context.device) {
      groups.push_back(group.group);
      EXPECT_EQ(group.fd, fd);
      EXPECT_EQ(group.engine, group.group == context.groups[0] ? Engine::kGraphics : Engine::kCopy);
    }
  EXPECT_EQ(groups, context.groups);
  for (const auto& channel : all_of<ChannelCreated>(events))
    if (std::ranges::count(groups, channel.parent) && channel.client == context.client) {
      channels.push_back(channel.channel);
      EXPECT_EQ(channel.class_id, 0xC86Fu);
    }
  EXPECT_EQ(channels, context.channels);
}

// An answer without objects would say that they are gone, and a child may have the descriptor.
TEST_F(AttachTest, OfOneThatHasEndedAndIsNotReapedNothingIsSaid) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, 0x5C000001);
  rm_.share(kProgram, fd, ProcessId{4712, 1});
  rm_.end(kProgram.pid);
  const auto found = find_objects(client(), kProgram, {}, learnt_)->finish();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, std::errc::no_such_process);
}

TEST_F(AttachTest, FindsAContextParentsFirst) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto context = rm_.make_context(theirs, 0, kFirstObject);
  const auto events = attach();
  ASSERT_EQ(all_of<ClientCreated>(events).size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ProcessOpened>(events.front().what));
  const ClientCreated client = all_of<ClientCreated>(events).front();
  EXPECT_EQ(client.client, theirs);
  EXPECT_EQ(client.fd, fd);
  expect_context(events, context, fd, 1);  // GPU 0 has instance 1
  EXPECT_EQ(events.size(), 1u + 1 + 1 + 4 + 8);
  std::vector<size_t> kinds;
  for (const DriverEvent& event : events) {
    EXPECT_EQ(event.process, kProgram);
    kinds.push_back(event.what.index());
  }
  EXPECT_TRUE(std::ranges::is_sorted(kinds)) << "process, client, devices, groups, channels";
}

// The second context's GPU, how far its objects are from the first one's, and its instance.
struct SecondContext {
  uint32_t gpu, distance, instance;
};
class TwoContexts : public AttachTest, public testing::WithParamInterface<SecondContext> {};

TEST_P(TwoContexts, OfOneClientAreFoundOnTheirGpus) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto first = rm_.make_context(theirs, 0, kFirstObject);
  const auto second = rm_.make_context(theirs, GetParam().gpu, kFirstObject + GetParam().distance);
  const auto events = attach();
  expect_context(events, first, fd, 1);
  expect_context(events, second, fd, GetParam().instance);
}

INSTANTIATE_TEST_SUITE_P(OneGpuAndTwo, TwoContexts,
                         testing::Values(SecondContext{0, 200, 1}, SecondContext{1, 100, 0}));

TEST_F(AttachTest, FindsAClientOnEachDescriptor) {
  const int first_fd = rm_.open_control(kProgram);
  rm_.open_control(kProgram);  // a mapping's, without a client
  const int third_fd = rm_.open_control(kProgram);
  const uint32_t first = rm_.make_client(kProgram, first_fd);
  rm_.pass_clients(50);
  const uint32_t second = rm_.make_client(kProgram, third_fd);
  const auto first_context = rm_.make_context(first, 0, kFirstObject);
  const auto second_context = rm_.make_context(second, 0, kFirstObject);  // same handles
  const auto events = attach();
  EXPECT_EQ(all_of<ClientCreated>(events).size(), 2u);
  expect_context(events, first_context, first_fd, 1);
  expect_context(events, second_context, third_fd, 1);
}

TEST_F(AttachTest, AProgramWithoutAContextHasOnlyItsClient) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_client(kProgram, fd);
  const auto events = attach();
  EXPECT_EQ(all_of<ClientCreated>(events).size(), 1u);
  EXPECT_EQ(events.size(), 2u);
}

TEST_F(AttachTest, AProgramWithoutAClientHasNothing) {
  rm_.open_control(kProgram);
  EXPECT_TRUE(attach().empty());
  EXPECT_LE(rm_.calls.size(), 65'536u + 1);
}

TEST_F(AttachTest, AProgramWithoutTheDriverIsNotAskedFor) {
  EXPECT_TRUE(attach({123, 4}).empty());
  EXPECT_TRUE(rm_.calls.empty());
}

TEST_F(AttachTest, FewQuestionsForAProgramThatStartedLately) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.pass_clients(100);
  attach();
  EXPECT_LT(rm_.calls.size(), 1300u);  // 100 clients, 22 objects twice, 1,024 misses at the end
}

// Handles as on a machine on which the agent has run for weeks.
TEST_F(AttachTest, FindsAProgramManyClientsAfterOursAndAfterTheNumbersWrapped) {
  rm_.pass_clients(70'000);
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto context = rm_.make_context(theirs, 0, kFirstObject);
  expect_context(attach(), context, fd, 1);
  EXPECT_LT(rm_.calls.size(), 1300u);

  rm_.pass_clients(0x100000 - 70'000 - 1000);
  const ProcessId before_wrap{501, 78};
  const int second_fd = rm_.open_control(before_wrap);
  const auto old_context =
      rm_.make_context(rm_.make_client(before_wrap, second_fd), 0, kFirstObject);
  rm_.wrap_clients();
  rm_.pass_clients(500);
  expect_context(attach(before_wrap), old_context, second_fd, 1);
}

TEST_F(AttachTest, FindsAProgramThatManyClientsFollowed) {
  const int fd = rm_.open_control(kProgram);
  const auto context = rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.pass_clients(60'000);
  expect_context(attach(), context, fd, 1);
}

TEST_F(AttachTest, GivesUpOnAProgramThatTooManyClientsFollowed) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.open_control(kProgram);
  rm_.open_control(kProgram);
  rm_.pass_clients(200'000);
  EXPECT_TRUE(attach().empty());
  EXPECT_LE(rm_.calls.size(), 65'536u + 1);
}

// An old job behind many descriptors: each look goes on where the one before has stopped.
TEST_F(AttachTest, FindsAnOldProgramBehindManyDescriptorsAtLastAndThenAsksLittle) {
  for (int i = 0; i < 5; ++i) rm_.open_control(kProgram);  // of mappings, without a client
  const int fd = rm_.open_control(kProgram);
  const auto context = rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.pass_clients(30'000);
  int looks = 1;
  while (attach().empty()) {
    ASSERT_LE(rm_.calls.size(), 65'536u + 1);
    rm_.pass_clients(10);
    ASSERT_LT(++looks, 10);
  }
  EXPECT_GT(looks, 2);
  LearntFiles files = learnt_.of(kProgram);
  ASSERT_EQ(files.size(), 6u);
  for (auto& [number, file] : files)
    if (number != fd) file.back = 0x100000;  // as after some more looks
  learnt_.put(kProgram, files);
  expect_context(attach(), context, fd, 1);
  EXPECT_LT(rm_.calls.size(), 1300u);
}

TEST_F(AttachTest, AClientThatIsMadeLaterIsFoundBesideWhatWasAskedBefore) {
  const int fd = rm_.open_control(kProgram);
  EXPECT_TRUE(attach().empty());
  rm_.pass_clients(300);
  const auto context = rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.pass_clients(300);
  expect_context(attach(), context, fd, 1);
  EXPECT_LT(rm_.calls.size(), 2000u);
}

// What a search would not find by itself: behind a gap, and at another base.
TEST_F(AttachTest, KnownObjectsAreAskedForByName) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto near = rm_.make_context(theirs, 0, kFirstObject);
  const auto far = rm_.make_context(theirs, 1, 0x7C000000);
  rm_.pass_clients(50'000);
  std::vector<ObjectRef> known{{theirs, theirs}, {theirs, 0x5CFFFFFF}};
  for (const auto* context : {&near, &far}) {
    for (const uint32_t group : context->groups) known.push_back({theirs, group});
    for (const uint32_t channel : context->channels) known.push_back({theirs, channel});
  }
  const auto events = attach(kProgram, known);
  EXPECT_TRUE(is_complete_);
  EXPECT_LT(rm_.calls.size(), 1400u) << "the client was known, too";
  std::vector<uint32_t> groups;
  for (const auto& group : all_of<GroupCreated>(events)) groups.push_back(group.group);
  EXPECT_EQ(groups.size(), near.groups.size() + far.groups.size());
  EXPECT_EQ(all_of<ChannelCreated>(events).size(), near.channels.size() + far.channels.size());
}

TEST_F(AttachTest, ASearchThatCouldNotAskForEverythingKnownSaysSo) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto far = rm_.make_context(theirs, 0, 0x7C000000);
  rm_.fail_always({GS_NV_ESC_RM_CONTROL, GS_CTRL_CLIENT_GET_HANDLE_INFO},
                  {.error = 0, .status = GS_NV_ERR_NO_MEMORY});
  EXPECT_TRUE(attach(kProgram, {{theirs, theirs}, {theirs, far.groups[0]}}).empty());
  EXPECT_FALSE(is_complete_);
  rm_.forget_faults();
  rm_.close_in(kProgram.pid, fd);
  EXPECT_TRUE(attach(kProgram, {{theirs, theirs}, {theirs, far.groups[0]}}).empty());
  EXPECT_TRUE(is_complete_) << "it has nothing any more";
}

TEST_F(AttachTest, TwoKnownClientsOfOneDescriptorAreBothFound) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t first = rm_.make_client(kProgram, fd);
  const uint32_t second = rm_.make_client(kProgram, fd);
  attach(kProgram, {{first, first}, {second, second}});
  EXPECT_TRUE(is_complete_);
  EXPECT_EQ(learnt_.of(kProgram).at(fd).clients.size(), 2u);
}

TEST_F(AttachTest, SmallGapsBetweenHandlesDoNotEndTheSearch) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto first = rm_.make_context(theirs, 0, kFirstObject + 900);
  const auto second = rm_.make_context(theirs, 0, kFirstObject + 1900);
  const auto events = attach();
  expect_context(events, first, fd, 1);
  expect_context(events, second, fd, 1);
}

TEST_F(AttachTest, ChannelsAreToldFromOtherClassesByGeneration) {
  const int fd = rm_.open_control(kProgram);
  const uint32_t theirs = rm_.make_client(kProgram, fd);
  const auto context = rm_.make_context(theirs, 0, kFirstObject);
  rm_.make_object(theirs, kFirstObject + 50, context.device, 0x906F);  // an old channel class
  rm_.make_object(theirs, kFirstObject + 51, context.device, 0x006F);  // not a channel
  rm_.make_object(theirs, kFirstObject + 52, context.device, 0xC661);  // usermode doorbell
  std::vector<uint32_t> channels;
  for (const auto& channel : all_of<ChannelCreated>(attach())) channels.push_back(channel.channel);
  EXPECT_EQ(channels.size(), context.channels.size() + 1);
  EXPECT_EQ(channels.back(), kFirstObject + 50);
}

TEST_F(AttachTest, ADescriptorThatIsClosedMeanwhileIsPassedOver) {
  const int fd = rm_.open_control(kProgram);
  const int other_fd = rm_.open_control(kProgram);
  const auto context = rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.after_listing = [&] { rm_.close_in(kProgram.pid, other_fd); };
  expect_context(attach(), context, fd, 1);
}

TEST_F(AttachTest, AsksOneQuestionAtATimeWhenThereIsNoTime) {
  const int fd = rm_.open_control(kProgram);
  const auto context = rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  const auto search = find_objects(client(), kProgram, {}, learnt_);
  std::optional<ObjectSearch::Found> found;
  for (int pieces = 0; !found; ++pieces) {
    ASSERT_LT(pieces, 100'000);
    rm_.calls.clear();
    auto advanced = search->advance(Nanos::zero());
    ASSERT_TRUE(advanced) << advanced.error().message();
    EXPECT_LE(rm_.calls.size(), 10u);
    found = std::move(*advanced);
  }
  expect_context(*found, context, fd, 1);
}

TEST_F(AttachTest, AProgramThatEndsDuringTheSearchEndsIt) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  const auto search = find_objects(client(), kProgram, {}, learnt_);
  auto first = search->advance(Nanos::zero());
  ASSERT_TRUE(first && !*first);
  rm_.kill(kProgram.pid);
  const auto second = search->advance(Nanos::zero());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, std::errc::no_such_process);
}

TEST_F(AttachTest, AProgramThatEndsMeanwhileIsNoSuchProcess) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  rm_.after_listing = [&] { rm_.kill(kProgram.pid); };
  auto events = find_objects(client(), kProgram, {}, learnt_)->finish();
  ASSERT_FALSE(events);
  EXPECT_EQ(events.error().code, std::errc::no_such_process);
}

TEST_F(AttachTest, AnotherProgramUnderThePidIsNoSuchProcess) {
  const int fd = rm_.open_control({kProgram.pid, kProgram.start_ticks + 5});
  rm_.make_client({kProgram.pid, kProgram.start_ticks + 5}, fd);
  auto events = find_objects(client(), kProgram, {}, learnt_)->finish();
  ASSERT_FALSE(events);
  EXPECT_EQ(events.error().code, std::errc::no_such_process);
}

TEST_F(AttachTest, KeepsNoDescriptorOfTheProgram) {
  const int fd = rm_.open_control(kProgram);
  rm_.make_context(rm_.make_client(kProgram, fd), 0, kFirstObject);
  const int before = ::dup(STDIN_FILENO);
  ::close(before);
  attach();
  const int after = ::dup(STDIN_FILENO);  // the lowest free number
  ::close(after);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace gpushare::nvrm
