// SPDX-License-Identifier: Apache-2.0
// Tests RmGpu over the fake driver, and which drivers it trusts.
#include "intercept/nvrm/rm_gpu.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "intercept/nvrm/nvml.h"
#include "intercept/nvrm/versions.h"
#include "shmctl/base/proc_stat.h"
#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

struct VersionRow {
  const char* version;
  Trust trust;
};

TEST(Versions, AreTrustedByTheirBranch) {
  const VersionRow rows[] = {
      {"580.159.04", Trust::kMeasured}, {"580.142", Trust::kMeasured},
      {"535.104.05", Trust::kHeaders},  {"550.54.14", Trust::kHeaders},
      {"595.1", Trust::kHeaders},       {"525.60.13", Trust::kUnknown},
      {"600.10", Trust::kUnknown},      {"5800.1", Trust::kUnknown},
      {"580", Trust::kUnknown},         {"", Trust::kUnknown},
      {".580", Trust::kUnknown},        {"-580.1", Trust::kUnknown},
      {"580x.1", Trust::kUnknown},      {"99999999999.1", Trust::kUnknown},
  };
  for (const VersionRow& row : rows) EXPECT_EQ(driver_trust(row.version), row.trust) << row.version;
}

TEST(Versions, ChannelClassesFromVoltaToBlackwellAreKnown) {
  for (uint32_t known : {0xC36Fu, 0xC46Fu, 0xC56Fu, 0xC86Fu, 0xC96Fu, 0xCA6Fu})
    EXPECT_TRUE(is_known_channel_class(known)) << std::hex << known;
  for (uint32_t unknown : {0u, 0x6Fu, 0xA06Fu, 0xB06Fu, 0xC86Eu, 0xCC6Fu})
    EXPECT_FALSE(is_known_channel_class(unknown)) << std::hex << unknown;
}

TEST(Nvml, IsAbsentWhereTheLibraryIs) {
  if (void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ::dlclose(library);
    GTEST_SKIP() << "this machine has NVML";
  }
  EXPECT_EQ(Nvml::load(), nullptr);
}

class RmGpuFakeTest : public testing::Test {
 protected:
  void SetUp() override {
    add_two_gpus(rm_);
    fd_ = rm_.open_control(self_);
    theirs_ = rm_.make_client(self_, fd_);
    context_ = rm_.make_context(theirs_, 1, 0x5C000001);
  }
  std::unique_ptr<Gpu> make(RmUse use = RmUse::kAgent) {
    auto gpu = make_rm_gpu(rm_, use);
    EXPECT_TRUE(gpu) << gpu.error().message();
    return gpu ? std::move(*gpu) : nullptr;
  }
  ChannelRef channel() const { return {theirs_, context_.channels[0]}; }
  GroupRef group() const { return {self_, fd_, theirs_, context_.groups[0]}; }

  // The program is this process: RmGpu asks the real /proc when a process started.
  const ProcessId self_{::getpid(), start_ticks_of(::getpid())};
  FakeRm rm_;
  int fd_ = -1;
  uint32_t theirs_ = 0;
  FakeRm::Context context_;
};

TEST_F(RmGpuFakeTest, ControlsFreezesSlicesAndReads) {
  auto gpu = make();
  EXPECT_EQ(gpu->gpus().size(), 2u);
  EXPECT_TRUE(gpu->support().can_freeze);
  EXPECT_TRUE(gpu->support().can_set_slice);
  EXPECT_TRUE(gpu->support().has_switch_log);
  EXPECT_EQ(gpu->support().driver_version, "580.142");
  EXPECT_EQ(gpu->support().reason, "");
  EXPECT_TRUE(gpu->knows_channel_class(0xC86F));
  EXPECT_FALSE(gpu->knows_channel_class(0xCC6F));
  const ChannelRef one = channel();
  EXPECT_TRUE(gpu->freeze(1, std::span(&one, 1)));
  EXPECT_EQ(rm_.frozen(one.client, one.channel), 1);
  EXPECT_TRUE(gpu->thaw(1, std::span(&one, 1)));
  EXPECT_EQ(rm_.frozen(one.client, one.channel), 0);
  EXPECT_TRUE(gpu->set_slice(group(), Micros(1)));
  EXPECT_EQ(gpu->slice(group()), Micros(1));
  rm_.log_switch(1, GS_SWITCH_START, 3, 4, rm_.gpu_now());
  auto batch = gpu->read_switches(1);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->records.size(), 1u);
}

TEST_F(RmGpuFakeTest, TellsWhichObjectsAreNotThere) {
  auto gpu = make();
  const std::vector<ObjectRef> there{
      {theirs_, theirs_}, {theirs_, context_.groups[0]}, {theirs_, context_.channels[0]}},
      gone{{theirs_, 0x5C00FFFF}, {theirs_ + 99, theirs_ + 99}};
  std::vector<ObjectRef> all = there;
  all.insert(all.end(), gone.begin(), gone.end());
  EXPECT_EQ(gpu->missing(all), gone);
  rm_.fail_always({GS_NV_ESC_RM_CONTROL, GS_CTRL_CLIENT_GET_ACCESS_RIGHTS},
                  {.status = GS_NV_ERR_NOT_SUPPORTED});
  EXPECT_EQ(gpu->missing(all).error().code, std::errc::not_supported);
}

// The descriptor has another number there.
TEST_F(RmGpuFakeTest, AGroupIsReachedThroughWhoHasInheritedIt) {
  const ProcessId maker{4711, 1};
  const int fd = rm_.open_control(maker);
  const uint32_t client = rm_.make_client(maker, fd);
  const FakeRm::Context context = rm_.make_context(client, 1, 0x5C000001);
  const GroupRef group{maker, fd, client, context.groups[0]};
  rm_.share(maker, fd, self_, fd + 100);
  auto gpu = make();
  rm_.end(maker.pid);
  EXPECT_FALSE(gpu->set_slice(group, Micros(7)));
  ASSERT_TRUE(gpu->attach(self_.pid)->finish());
  EXPECT_TRUE(gpu->set_slice(group, Micros(7)));
  EXPECT_EQ(gpu->slice(group), Micros(7));
}

TEST_F(RmGpuFakeTest, ASliceUnderAMicrosecondIsRefusedHere) {
  auto gpu = make();
  EXPECT_EQ(gpu->set_slice(group(), Micros(0)).error().code, std::errc::invalid_argument);
  EXPECT_EQ(gpu->set_slice(group(), Micros(-5)).error().code, std::errc::invalid_argument);
  EXPECT_EQ(gpu->slice(group()), Micros(2048));
}

TEST_F(RmGpuFakeTest, AGpuThatIsNotThereIsAnError) {
  auto gpu = make();
  const ChannelRef one = channel();
  EXPECT_EQ(gpu->freeze(2, std::span(&one, 1)).error().code, std::errc::no_such_device);
  EXPECT_EQ(gpu->thaw(2, std::span(&one, 1)).error().code, std::errc::no_such_device);
  EXPECT_FALSE(gpu->read_switches(2));
  EXPECT_EQ(gpu->utilisation(2), std::nullopt);
}

TEST_F(RmGpuFakeTest, AnUnknownDriverIsOnlyObservedButThawsAreNeverRefused) {
  rm_.version = "999.1";
  auto gpu = make();
  EXPECT_FALSE(gpu->support().can_freeze);
  EXPECT_FALSE(gpu->support().can_set_slice);
  EXPECT_THAT(gpu->support().reason, testing::HasSubstr("999.1"));
  const ChannelRef one = channel();
  EXPECT_EQ(gpu->freeze(1, std::span(&one, 1)).error().code, std::errc::operation_not_permitted);
  EXPECT_EQ(gpu->set_slice(group(), Micros(9)).error().code, std::errc::operation_not_permitted);
  EXPECT_EQ(rm_.count({GS_NV_ESC_RM_CONTROL, GS_CTRL_DISABLE_CHANNELS}), 0u);
  EXPECT_TRUE(gpu->thaw(1, std::span(&one, 1)));
}

TEST_F(RmGpuFakeTest, WithoutASwitchLogItSaysWhyAndStillControls) {
  rm_.fail_always({GS_NV_ESC_RM_CONTROL, GS_CTRL_GR_BIND_SWITCH_LOG},
                  {.status = GS_NV_ERR_INSUFFICIENT_PERMISSIONS});
  auto gpu = make();
  EXPECT_FALSE(gpu->support().has_switch_log);
  EXPECT_THAT(gpu->support().reason, testing::HasSubstr("bind the switch log"));
  EXPECT_FALSE(gpu->read_switches(0));
  const ChannelRef one = channel();
  EXPECT_TRUE(gpu->freeze(1, std::span(&one, 1)));
}

TEST_F(RmGpuFakeTest, ALogThatFailsIsOpenedAgain) {
  auto gpu = make();
  ASSERT_TRUE(gpu->read_switches(1));
  rm_.fail_nth(0, {.error = 0, .status = 0x0F});  // GPU_IS_LOST
  EXPECT_FALSE(gpu->read_switches(1));
  EXPECT_TRUE(gpu->read_switches(1));
  EXPECT_TRUE(gpu->read_switches(0));
}

TEST_F(RmGpuFakeTest, RecoveryOpensNoLog) {
  auto gpu = make(RmUse::kRecovery);
  EXPECT_EQ(rm_.count({GS_NV_ESC_RM_ALLOC, GS_CLASS_EVENT_BUFFER}), 0u);
  EXPECT_FALSE(gpu->support().has_switch_log);
  EXPECT_FALSE(gpu->read_switches(0));
  EXPECT_EQ(gpu->utilisation(0), std::nullopt);
  const ChannelRef one = channel();
  EXPECT_TRUE(gpu->freeze(1, std::span(&one, 1)));
  EXPECT_TRUE(gpu->thaw(1, std::span(&one, 1)));
}

// An agent that had both has listed what it froze by number; who undoes it may lack one of them.
TEST_F(RmGpuFakeTest, AGpuThatRefusesLeavesTheOthersTheirNumbers) {
  rm_.closed_files[0] = std::errc::io_error;
  auto gpu = make(RmUse::kRecovery);
  const ChannelRef one = channel();
  EXPECT_TRUE(gpu->freeze(1, std::span(&one, 1)));
  EXPECT_EQ(rm_.frozen(one.client, one.channel), 1);
  EXPECT_EQ(gpu->thaw(0, std::span(&one, 1)).error().code, std::errc::io_error)
      << "not a channel that has gone";
  EXPECT_TRUE(gpu->thaw(1, std::span(&one, 1)));
  EXPECT_EQ(rm_.frozen(one.client, one.channel), 0);
}

TEST_F(RmGpuFakeTest, ListedGpusAreOpenedOneByOne) {
  rm_.closed_files[0] = std::errc::io_error;
  auto gpu = list_rm_gpus(rm_, RmUse::kAgent).value();
  EXPECT_EQ(gpu->gpus().size(), 2u);
  EXPECT_TRUE(rm_.opened.empty());
  EXPECT_FALSE(gpu->read_switches(1));
  EXPECT_EQ(gpu->open(0).error().code, std::errc::io_error);
  const auto opened = gpu->open(1);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->info.uuid, "GPU-22222222-bbbb");
  EXPECT_EQ(opened->no_log_reason, "");
  rm_.log_switch(1, GS_SWITCH_START, 3, 4, rm_.gpu_now());
  const auto batch = gpu->read_switches(1);
  ASSERT_TRUE(batch) << batch.error().message();
  ASSERT_EQ(batch->records.size(), 1u);
  EXPECT_EQ(batch->records[0].gpu, 1u);
}

TEST_F(RmGpuFakeTest, AListedGpuIsOpenedByItsFirstThaw) {
  auto gpu = list_rm_gpus(rm_, RmUse::kRecovery).value();
  const ChannelRef one = channel();
  EXPECT_TRUE(gpu->thaw(1, std::span(&one, 1)));
  EXPECT_EQ(rm_.opened, std::vector<unsigned>{1});
}

TEST_F(RmGpuFakeTest, AttachOpensWithTheProcess) {
  auto gpu = make();
  auto events = gpu->attach(self_.pid)->finish();
  ASSERT_TRUE(events) << events.error().message();
  ASSERT_FALSE(events->empty());
  EXPECT_TRUE(std::holds_alternative<ProcessOpened>(events->front().what));
  EXPECT_EQ(events->front().process, self_);
  EXPECT_EQ(events->size(), 1u + 1 + 1 + 4 + 8);
}

TEST_F(RmGpuFakeTest, AttachToNoProcessSaysSo) {
  auto gpu = make();
  EXPECT_EQ(gpu->attach(0x7FFFFFF0)->finish().error().code, std::errc::no_such_process);
}

TEST_F(RmGpuFakeTest, UsersAreTheOthersThatHoldTheDriverOpen) {
  rm_.open_control({900, 1});
  rm_.open_control({901, 1});
  const int closed = rm_.open_control({902, 1});
  rm_.close_in(902, closed);
  EXPECT_THAT(make()->users().value(), testing::ElementsAre(900, 901));
}

}  // namespace
}  // namespace gpushare::nvrm
