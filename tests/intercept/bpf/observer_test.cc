// SPDX-License-Identifier: Apache-2.0
// Tests what the observer reports of the calls that programs make.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "tests/intercept/bpf/observer_fixture.h"

namespace gpushare {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

constexpr uint32_t kComputeClass = 0xCBC0;  // an object that is of no interest

TEST_F(BpfObserverTest, ReportsWhatAProgramCreatesInOrder) {
  const Fd file = driver_->open();
  const int fd = file.get();
  HeldChild child([fd] {
    gs_device_params device_params{};
    device_params.device_id = 3;
    gs_group_params group_params{};
    group_params.engine_type = GS_ENGINE_TYPE_GR0;
    gs_memory_params memory_params{};
    memory_params.size = 2u << 20;
    gs_timeslice slice{2048};
    rm_alloc(fd, 0, 0, GS_CLASS_ROOT_CLIENT, nullptr, 0, 1000);
    rm_alloc(fd, 1000, 1000, GS_CLASS_DEVICE, &device_params, sizeof device_params, 1);
    rm_alloc(fd, 1000, 1, GS_CLASS_SUBDEVICE, nullptr, 0, 2);
    rm_alloc(fd, 1000, 1, GS_CLASS_CHANNEL_GROUP, &group_params, sizeof group_params, 3);
    rm_alloc(fd, 1000, 3, kHopperChannel, nullptr, 0, 4);
    rm_alloc(fd, 1000, 4, kComputeClass, nullptr, 0, 5);
    rm_control(fd, 1000, 3, GS_CTRL_SET_TIMESLICE, &slice, sizeof slice);
    rm_alloc(fd, 1000, 1, GS_CLASS_MEMORY_LOCAL_USER, &memory_params, sizeof memory_params, 6);
    rm_alloc(fd, 1000, 1, GS_CLASS_MEMORY_SYSTEM, &memory_params, sizeof memory_params, 7);
    rm_free(fd, 1000, 3);
    rm_free(fd, 1000, 1000);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  const std::string at = " fd " + std::to_string(fd);
  EXPECT_THAT(
      from(child.process()),
      ElementsAre("opened", "client 1000" + at, "device 1 instance 3", "group 3 on 1 engine 0" + at,
                  "channel 4 in 3 class 51311", "control 2691432707 on 3 value 2048",
                  "memory 6 bytes 2097152 video", "freed 3", "freed 1000", "closed"))
      << "the system's memory (7) counts for nobody";
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(BpfObserverTest, ReadsHandlesAsTheDriverFilledThemIn) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    const auto client = rm_alloc(fd, 0, 0, GS_CLASS_ROOT);
    gs_group_params params{.h_error = 0,
                           .h_ecc_error = 0,
                           .h_va_space = 0,
                           .engine_type = GS_ENGINE_TYPE_COPY0,
                           .is_vgpu_plugin = 0,
                           .pad = {}};
    const auto group = rm_alloc_nvos21(fd, client.handle, 9, GS_CLASS_CHANNEL_GROUP, &params);
    rm_free(fd, client.handle, client.handle);
    rm_free(fd, client.handle, group.handle);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ClientCreated>(), SizeIs(1));
  ASSERT_THAT(all<GroupCreated>(), SizeIs(1));
  ASSERT_THAT(all<ObjectFreed>(), SizeIs(2));
  EXPECT_NE(all<ClientCreated>()[0].client, 0u);
  EXPECT_EQ(all<ClientCreated>()[0].client, all<ObjectFreed>()[0].object);
  EXPECT_EQ(all<GroupCreated>()[0].group, all<ObjectFreed>()[1].object);
  EXPECT_EQ(all<GroupCreated>()[0].engine, Engine::kCopy);
}

TEST_F(BpfObserverTest, FollowsTheCommandInsideATransfer) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    // The fake driver leaves the inner argument as it is: here, an answered allocation.
    gs_nvos64 inner{7, 0, 8, kHopperChannel, 0, 0, 0, 0, 0, 0};
    gs_nv_xfer outer{GS_NV_ESC_RM_ALLOC, sizeof inner, reinterpret_cast<uintptr_t>(&inner)};
    rm_call(fd, GS_NV_ESC_IOCTL_XFER_CMD, &outer, sizeof outer);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ChannelCreated>(), SizeIs(1));
  EXPECT_EQ(all<ChannelCreated>()[0].channel, 8u);
}

TEST_F(BpfObserverTest, SeesThroughAnotherTypeByte) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    gs_nvos64 arg{};
    arg.h_class = kHopperChannel;
    if (::ioctl(fd, _IOWR('G', GS_NV_ESC_RM_ALLOC, gs_nvos64), &arg) != 0) ::_exit(1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(all<ChannelCreated>(), SizeIs(1));
}

TEST_F(BpfObserverTest, AFailedAllocationCreatesNothing) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    if (rm_alloc(fd, 1, 1, GS_CLASS_ROOT, nullptr, 0, FakeDriver::kRefusedHandle).status ==
        GS_NV_OK)
      ::_exit(1);
    // The driver refuses parameters that cannot be read, so there is no lost event.
    auto* const nowhere = reinterpret_cast<void*>(8);
    rm_alloc(fd, 1, 1, GS_CLASS_CHANNEL_GROUP, nowhere, 20, FakeDriver::kRefusedHandle);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "closed"));
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(BpfObserverTest, WhatCannotBeReadIsItsProcessesLossAlone) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    rm_alloc(fd, 1, 1, GS_CLASS_CHANNEL_GROUP, reinterpret_cast<void*>(8), 20);
    rm_free(fd, 1, 1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "lost", "freed 1", "closed"));
  EXPECT_EQ(all<EventsLost>()[0].count, 1u);
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(BpfObserverTest, UnreadableCallsWithoutEndAreOneRecord) {
  start({.ring_bytes = 4096, .accept_any_file = true});
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    auto* const nowhere = reinterpret_cast<void*>(8);
    for (int i = 0; i < 200; ++i) rm_alloc(fd, 1, 1, GS_CLASS_CHANNEL_GROUP, nowhere, 20);
    gs_nv_xfer outer{GS_NV_ESC_RM_ALLOC, sizeof(gs_nvos64), 8};
    rm_call(fd, GS_NV_ESC_IOCTL_XFER_CMD, &outer, sizeof outer);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "lost", "closed"));
  EXPECT_EQ(all<EventsLost>()[0].count, 201u);
  EXPECT_EQ(observer_->dropped(), 0u) << "others lost nothing";
}

TEST_F(BpfObserverTest, ReportsWhoseChannelsWereFrozen) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    gs_disable_channels params{};
    params.disable = 1;
    params.count = 2;
    params.clients[0] = params.clients[1] = 1000;
    params.channels[0] = 5;
    params.channels[1] = 6;
    rm_control(fd, 7, 8, GS_CTRL_DISABLE_CHANNELS, &params, sizeof params);
    params.disable = 0;
    params.count = 0xFFFFFFFF;  // more than there can be
    rm_control(fd, 7, 8, GS_CTRL_DISABLE_CHANNELS, &params, sizeof params);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(from(child.process()), SizeIs(4));
  EXPECT_EQ(from(child.process())[1], "froze 1000/5 1000/6");
  EXPECT_THAT(all<ChannelsSwitched>()[1].channels, SizeIs(GS_DISABLE_CHANNELS_MAX));
}

// RM as the fake driver would have it: which objects the clients of each process have.
class KnownObjects final : public nvrm::Driver {
 public:
  struct Name {
    pid_t pid;
    uint32_t client, object;
    auto operator<=>(const Name&) const = default;
  };
  std::map<Name, std::pair<uint32_t, uint32_t>> objects;  // class and parent

  Result<Fd> fetch(ProcessId process, int) override {
    Fd copy(::memfd_create("file", MFD_CLOEXEC));
    holder_[copy.get()] = process.pid;
    return copy;
  }
  std::mutex lock;  // the driver's

  int ioctl(int fd, unsigned, void* argument, size_t) override {
    const std::lock_guard held(lock);
    auto& call = *static_cast<gs_nvos54*>(argument);
    auto& info = *reinterpret_cast<gs_handle_info*>(static_cast<uintptr_t>(call.p_params));
    const auto known = objects.find({holder_.at(fd), call.h_client, info.h_object});
    call.status = known == objects.end() ? GS_NV_ERR_INVALID_OBJECT_HANDLE : GS_NV_OK;
    if (known == objects.end()) return 0;
    const auto& [class_id, parent] = known->second;
    info.result = info.index == GS_HANDLE_INFO_CLASS ? class_id : parent;
    return 0;
  }
  Result<Fd> open(unsigned) override { return make_error(std::errc::no_such_device, "open"); }
  std::optional<unsigned> minor_of(const std::string&) override { return std::nullopt; }
  Result<const void*> map(int, size_t) override {
    return make_error(std::errc::no_such_device, "map");
  }
  void unmap(const void*, size_t) override {}
  Result<std::vector<int>> control_fds(pid_t, size_t) override { return std::vector<int>{}; }
  Result<Look> look_for_control_fd(pid_t, long, size_t) override { return Look{}; }
  Result<std::vector<pid_t>> processes() override { return std::vector<pid_t>{}; }

 private:
  std::map<int, pid_t> holder_;
};

TEST_F(BpfObserverTest, AForgersClaimsAreNotHandedOut) {
  KnownObjects rm;
  rm_ = &rm;
  start({.accept_any_file = true});
  const Fd file = driver_->open();
  const auto program = [fd = file.get()] {
    gs_group_params params{};
    params.engine_type = GS_ENGINE_TYPE_GR0;
    rm_alloc(fd, 0, 0, GS_CLASS_ROOT_CLIENT, nullptr, 0, 1000);
    rm_alloc(fd, 1000, 1, GS_CLASS_CHANNEL_GROUP, &params, sizeof params, 3);
    rm_alloc(fd, 1000, 3, kHopperChannel, nullptr, 0, 4);
    ::raise(SIGSTOP);  // its objects are there until it ends
  };
  HeldChild victim(program);
  const pid_t pid = victim.process().pid;
  rm.objects = {{{pid, 1000, 1000}, {GS_CLASS_ROOT_CLIENT, 0}},
                {{pid, 1000, 3}, {GS_CLASS_CHANNEL_GROUP, 1}},
                {{pid, 1000, 4}, {kHopperChannel, 3}}};
  victim.go();
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  drain();
  EXPECT_THAT(from(victim.process()), SizeIs(4)) << "opened, client, group, channel";
  // The same from another, as a thread of it would write it over what the driver was told.
  HeldChild forger(program);
  forger.go();
  ASSERT_EQ(::waitpid(forger.process().pid, nullptr, WUNTRACED), forger.process().pid);
  drain();
  // What is found false is said once in each round of questions, of which there may be several.
  const std::vector<std::string> handed_out = from(forger.process());
  ASSERT_THAT(handed_out, SizeIs(AllOf(Ge(2), Le(4))));
  EXPECT_EQ(handed_out.front(), "opened");
  EXPECT_THAT(std::span(handed_out).subspan(1), Each("lost"));
  EXPECT_EQ(observer_->false_claims().count, 3u);
  EXPECT_EQ(observer_->false_claims().last, forger.process());
  observer_.reset();  // before rm
}

// As it is while many programs start: whoever drains has other things to do as well.
TEST_F(BpfObserverTest, ADriverThatDoesNotAnswerHoldsUpNobodyAndNothingIsHandedOutBefore) {
  KnownObjects rm;
  rm_ = &rm;
  start({.accept_any_file = true});
  const Fd file = driver_->open();
  HeldChild program([fd = file.get()] {
    gs_group_params params{};
    params.engine_type = GS_ENGINE_TYPE_GR0;
    rm_alloc(fd, 0, 0, GS_CLASS_ROOT_CLIENT, nullptr, 0, 1000);
    for (const uint32_t group : {2, 3, 4})
      rm_alloc(fd, 1000, 1, GS_CLASS_CHANNEL_GROUP, &params, sizeof params, group);
    ::raise(SIGSTOP);
  });
  const pid_t pid = program.process().pid;
  rm.objects[{pid, 1000, 1000}] = {GS_CLASS_ROOT_CLIENT, 0};
  for (const uint32_t group : {2, 3, 4})
    rm.objects[{pid, 1000, group}] = {GS_CLASS_CHANNEL_GROUP, 1};
  std::unique_lock held(rm.lock);
  program.go();
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  drain_now();  // it comes back
  drain_now();
  EXPECT_TRUE(observer_->is_examining());
  for (const std::string& line : from(program.process())) EXPECT_EQ(line, "opened");
  held.unlock();
  drain();
  const std::vector<std::string> lines = from(program.process());
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_EQ(lines[0], "opened");
  EXPECT_TRUE(lines[1].starts_with("client 1000"));
  for (const std::size_t i : {2u, 3u, 4u})
    EXPECT_TRUE(lines[i].starts_with("group " + std::to_string(i))) << lines[i];
  observer_.reset();  // before rm
}

// Records then stay in the ring, and a reader who is called for them can do nothing.
TEST_F(BpfObserverTest, WhileVeryMuchWaitsForTheDriverNobodyIsCalledForMore) {
  KnownObjects rm;
  rm_ = &rm;
  start({.ring_bytes = 8U << 20, .accept_any_file = true});
  constexpr uint32_t kCalls = 12'000;
  const Fd file = driver_->open();
  HeldChild program([fd = file.get()] {
    rm_alloc(fd, 0, 0, GS_CLASS_ROOT_CLIENT, nullptr, 0, 1000);
    for (uint32_t i = 0; i < kCalls; ++i) rm_free(fd, 1000, 2000 + i);
    ::raise(SIGSTOP);
  });
  const pid_t pid = program.process().pid;
  rm.objects[{pid, 1000, 1000}] = {GS_CLASS_ROOT_CLIENT, 0};
  const auto is_called = [&] {
    pollfd ready{observer_->fd(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  };
  std::unique_lock held(rm.lock);
  program.go();
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  EXPECT_TRUE(is_called());
  const auto drain_some = [&] {
    const auto count =
        observer_->drain([&](DriverEvent&& event) { events_.push_back(std::move(event)); }, 3000);
    ASSERT_TRUE(count);
  };
  for (int i = 0; i < 6; ++i) drain_some();
  EXPECT_FALSE(is_called());
  held.unlock();
  drain();
  EXPECT_EQ(all<ObjectFreed>().size() + observer_->dropped(), kCalls);
  EXPECT_EQ(observer_->dropped(), 0u);
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(drain_until_closed(program.process())) << "and they are called for again";
  observer_.reset();  // before rm
}

TEST_F(BpfObserverTest, IgnoresWhatIsNotACallOfInterest) {
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] {
    int bytes = 0;
    int pipe_fds[2];
    if (::pipe(pipe_fds) != 0 || ::ioctl(pipe_fds[0], FIONREAD, &bytes) != 0) ::_exit(1);
    char buffer[64] = {};
    rm_call(fd, GS_NV_ESC_RM_MAP_MEMORY, buffer, sizeof(gs_nvos33_fd));  // another command
    rm_call(fd, GS_NV_ESC_RM_FREE, buffer, 20);                          // a size RM does not take
    ::ioctl(fd, _IOWR('F', GS_NV_ESC_CARD_INFO, int), buffer);           // fails
    rm_alloc(fd, 1, 1, kComputeClass);                                   // another class
    rm_control(fd, 1, 1, GS_CTRL_GPU_GET_ID, buffer, 4);                 // another control
  });
  EXPECT_EQ(child.finish(), 0);
  HeldChild marker([fd = file.get()] { rm_free(fd, 1, 1); });
  EXPECT_EQ(marker.finish(), 0);
  ASSERT_TRUE(drain_until_closed(marker.process()));
  EXPECT_THAT(from(child.process()), IsEmpty());
  EXPECT_THAT(events_, SizeIs(3)) << "opened, freed and closed of the marker only";
}

TEST_F(BpfObserverTest, WithoutTheTestKnobOnlyTheDriversDevicesCount) {
  start({});
  const Fd file = driver_->open();
  HeldChild child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  drain();
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(BpfObserverTest, DoesNotHearItself) {
  const Fd file = driver_->open();
  rm_alloc(file.get(), 0, 0, GS_CLASS_ROOT);
  drain();
  EXPECT_THAT(events_, IsEmpty());
}

}  // namespace
}  // namespace gpushare
