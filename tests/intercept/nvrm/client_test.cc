// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/client.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/intercept/nvrm/machine.h"

namespace gpushare::nvrm {
namespace {

TEST(RmClient, DescribesEveryGpuByItsInstance) {
  FakeRm rm;
  add_two_gpus(rm);
  auto client = RmClient::open(rm);
  ASSERT_TRUE(client) << client.error().message();
  EXPECT_EQ(client->driver_version(), "580.142");
  ASSERT_EQ(client->gpus().size(), 2u);
  const GpuInfo& first = client->gpus()[0].info;
  EXPECT_EQ(first.index, 0u);
  EXPECT_EQ(first.instance, 1u);
  EXPECT_EQ(first.name, "NVIDIA H200");
  EXPECT_EQ(first.uuid, "GPU-11111111-aaaa");
  EXPECT_EQ(first.pci, "0000:1b:00.0");
  EXPECT_EQ(first.sm_count, 132u);
  EXPECT_EQ(first.memory_bytes, 1024u << 10);
  const GpuInfo& second = client->gpus()[1].info;
  EXPECT_EQ(second.index, 1u);
  EXPECT_EQ(second.instance, 0u);
  EXPECT_EQ(second.uuid, "GPU-22222222-bbbb");
  EXPECT_EQ(second.sm_count, 64u);
}

TEST(RmClient, OneGpuThatDoesNotAnswerIsLeftAlone) {
  FakeRm rm;
  add_two_gpus(rm);
  ASSERT_TRUE(RmClient::open(rm));
  const FakeRm::Call make{GS_NV_ESC_RM_ALLOC, GS_CLASS_DEVICE};
  const auto nth = std::ranges::find(rm.calls, make) - rm.calls.begin();
  rm.fail_nth(static_cast<size_t>(nth), {.error = 0, .status = 0x0F});  // GPU_IS_LOST
  const auto client = RmClient::open(rm);
  ASSERT_TRUE(client) << client.error().message();
  ASSERT_EQ(client->gpus().size(), 2u);
  EXPECT_FALSE(client->is_open(0));
  EXPECT_TRUE(client->is_open(1)) << "under the number that it has for all";
  EXPECT_EQ(client->gpus()[1].info.index, 1u);
  EXPECT_EQ(client->gpus()[1].info.uuid, "GPU-22222222-bbbb");
  EXPECT_TRUE(client->missing().contains("left alone")) << client->missing();
  rm.fail_always(make, {.error = 0, .status = 0x0F});
  EXPECT_FALSE(RmClient::open(rm));
}

TEST(RmClient, OpensEachGpuByItsOwnFileAlone) {
  FakeRm rm;
  add_two_gpus(rm);
  auto client = RmClient::list(rm);
  ASSERT_TRUE(client) << client.error().message();
  EXPECT_TRUE(rm.opened.empty());
  ASSERT_EQ(client->gpus().size(), 2u);
  EXPECT_EQ(client->gpus()[1].info.pci, "0000:43:00.0") << "known before";
  EXPECT_EQ(client->gpus()[1].info.instance, kNoInstance);
  ASSERT_TRUE(client->open(1));
  EXPECT_EQ(rm.opened, std::vector<unsigned>{1});
  EXPECT_TRUE(client->is_open(1));
  EXPECT_FALSE(client->is_open(0));
  EXPECT_EQ(client->gpus()[1].info.instance, 0u);
  rm.closed_files[0] = std::errc::permission_denied;
  EXPECT_EQ(client->open(0).error().code, std::errc::permission_denied);
  rm.closed_files.clear();
  EXPECT_TRUE(client->open(0)) << "again";
  EXPECT_TRUE(client->open(0)) << "it is";
  EXPECT_EQ(rm.opened, (std::vector<unsigned>{1, 0}));
  EXPECT_EQ(client->open(2).error().code, std::errc::no_such_device);
}

TEST(RmClient, OpensAllFilesWhereItIsNotKnownWhichOneIsTheGpus) {
  FakeRm rm;
  rm.tells_minors = false;
  add_two_gpus(rm);
  ASSERT_TRUE(RmClient::list(rm).value().open(1));
  EXPECT_EQ(rm.opened, (std::vector<unsigned>{0, 1}));
}

// A search for a program's clients would otherwise find ours on its descriptor.
TEST(RmClient, KnowsTheClientsOfItsGpusForItsOwn) {
  FakeRm rm;
  add_two_gpus(rm);
  auto client = RmClient::open(rm);
  ASSERT_TRUE(client) << client.error().message();
  EXPECT_TRUE(client->is_own(client->client()));
  EXPECT_TRUE(client->is_own(client->gpus()[1].client));
  EXPECT_NE(client->gpus()[0].client, client->gpus()[1].client);
  EXPECT_FALSE(client->is_own(rm.make_client(kProgram, rm.open_control(kProgram))));
}

TEST(RmClient, FallsBackToTheShorterListOfOlderDrivers) {
  FakeRm rm;
  rm.takes_three_id_arrays = false;
  add_two_gpus(rm);
  auto client = RmClient::open(rm);
  ASSERT_TRUE(client) << client.error().message();
  EXPECT_EQ(client->gpus().size(), 2u);
  EXPECT_EQ(rm.count({GS_NV_ESC_RM_CONTROL, GS_CTRL_GPU_GET_PROBED_IDS}), 2u);
}

TEST(RmClient, MinorsNeedNotBeDense) {
  FakeRm rm;
  rm.add_gpu({.minor = 5, .gpu_id = 9, .instance = 3});
  auto client = RmClient::open(rm);
  ASSERT_TRUE(client) << client.error().message();
  ASSERT_EQ(client->gpus().size(), 1u);
  EXPECT_EQ(client->gpus()[0].info.instance, 3u);
}

TEST(RmClient, WithoutADriverSaysNoSuchDevice) {
  FakeRm rm;
  rm.closed_files[GS_NV_CTL_MINOR] = std::errc::no_such_device;
  auto client = RmClient::open(rm);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, std::errc::no_such_device);
}

TEST(RmClient, WithoutAGpuSaysNoSuchDevice) {
  FakeRm rm;
  auto client = RmClient::open(rm);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, std::errc::no_such_device);
  EXPECT_STREQ(client.error().step, "list GPUs");
}

TEST(RmClient, SaysThatPermissionIsMissing) {
  for (const std::vector<unsigned>& closed :
       std::vector<std::vector<unsigned>>{{GS_NV_CTL_MINOR}, {0, 1}}) {
    FakeRm rm;
    add_two_gpus(rm);
    for (unsigned minor : closed) rm.closed_files[minor] = std::errc::permission_denied;
    auto client = RmClient::open(rm);
    ASSERT_FALSE(client);
    EXPECT_EQ(client.error().code, std::errc::permission_denied) << client.error().message();
  }
}

// Each call of a start fails once: a description may stay unknown, and any other failure is an
// error that names its step.
TEST(RmClient, EveryFailedStepIsNamed) {
  const std::map<FakeRm::Call, std::string> steps = {
      {{GS_NV_ESC_CHECK_VERSION_STR, 0}, "ask the driver's version"},
      {{GS_NV_ESC_RM_ALLOC, GS_CLASS_ROOT_CLIENT}, "make a driver client"},
      {{GS_NV_ESC_RM_CONTROL, GS_CTRL_GPU_GET_PROBED_IDS}, "list GPUs"},
      {{GS_NV_ESC_RM_CONTROL, GS_CTRL_GPU_ATTACH_IDS}, "attach a GPU"},
      {{GS_NV_ESC_RM_CONTROL, GS_CTRL_GPU_GET_ID_INFO_V2}, "find a GPU's instance"},
      {{GS_NV_ESC_RM_ALLOC, GS_CLASS_DEVICE}, "open a GPU's device object"},
      {{GS_NV_ESC_RM_ALLOC, GS_CLASS_SUBDEVICE}, "open a GPU's subdevice object"},
  };
  FakeRm healthy;
  add_two_gpus(healthy);
  ASSERT_TRUE(RmClient::open(healthy));
  size_t failed = 0;
  for (size_t nth = 0; nth < healthy.calls.size(); ++nth) {
    for (const FakeRm::Failure failure :
         {FakeRm::Failure{.status = GS_NV_ERR_NO_MEMORY}, FakeRm::Failure{.error = ENOMEM}}) {
      const FakeRm::Call call = healthy.calls[nth];
      // A version query has no status to fail with.
      if (call.nr == GS_NV_ESC_CHECK_VERSION_STR && failure.error == 0) continue;
      FakeRm rm;
      add_two_gpus(rm);
      rm.fail_nth(nth, failure);
      auto client = RmClient::open(rm);
      const auto step = steps.find(call);
      SCOPED_TRACE(testing::Message()
                   << nth << ": " << std::hex << call.nr << " " << call.selector);
      if (step != steps.end()) ++failed;
      if (client) {  // without one GPU, perhaps
        EXPECT_EQ(client->is_open(0) && client->is_open(1), step == steps.end());
        EXPECT_TRUE(client->missing().contains(step == steps.end() ? "" : step->second));
        continue;
      }
      ASSERT_NE(step, steps.end());
      EXPECT_EQ(client.error().step, step->second);
      EXPECT_EQ(client.error().code, std::errc::not_enough_memory);
    }
  }
  EXPECT_EQ(failed, 1u + 2 * (2 + 5 * 2));  // version, client, list; five for each GPU
}

TEST(RmClient, AListThatIsRefusedInBothFormsIsAnError) {
  FakeRm rm;
  add_two_gpus(rm);
  rm.fail_always({GS_NV_ESC_RM_CONTROL, GS_CTRL_GPU_GET_PROBED_IDS},
                 {.status = GS_NV_ERR_INVALID_ARGUMENT});
  auto client = RmClient::open(rm);
  ASSERT_FALSE(client);
  EXPECT_STREQ(client.error().step, "list GPUs");
  EXPECT_NE(client.error().message().find("0x1f"), std::string::npos) << client.error().message();
}

TEST(RmClient, NameAndNumberOfSmsAreReadInBothForms) {
  for (const int forms : {0, 1, 2, 3}) {
    const bool is_short = (forms & 1) != 0;
    const bool are_few = (forms & 2) != 0;
    FakeRm rm;
    add_two_gpus(rm);
    rm.has_short_names = is_short;
    rm.has_few_sms = are_few;
    auto client = RmClient::open(rm);
    ASSERT_TRUE(client) << client.error().message();
    EXPECT_FALSE(client->gpus()[0].info.name.empty()) << is_short;
    EXPECT_EQ(client->gpus()[0].info.sm_count, 132u) << are_few;
  }
}

TEST(RmClient, WhatTheDriverDoesNotTellStaysUnknown) {
  for (uint32_t command : {GS_CTRL_GPU_GET_NAME_STRING, GS_CTRL_GPU_GET_GID_INFO,
                           GS_CTRL_GPU_GET_PCI_INFO, GS_CTRL_FB_GET_INFO, GS_CTRL_GR_SM_MAPPINGS}) {
    FakeRm rm;
    add_two_gpus(rm);
    rm.fail_always({GS_NV_ESC_RM_CONTROL, command}, {.status = GS_NV_ERR_NOT_SUPPORTED});
    auto client = RmClient::open(rm);
    ASSERT_TRUE(client) << client.error().message();
    const GpuInfo& info = client->gpus()[0].info;
    EXPECT_EQ(info.name.empty(), command == GS_CTRL_GPU_GET_NAME_STRING);
    EXPECT_EQ(info.uuid.empty(), command == GS_CTRL_GPU_GET_GID_INFO);
    EXPECT_EQ(info.pci.empty(), command == GS_CTRL_GPU_GET_PCI_INFO);
    EXPECT_EQ(info.memory_bytes == 0, command == GS_CTRL_FB_GET_INFO);
    EXPECT_EQ(info.sm_count == 0, command == GS_CTRL_GR_SM_MAPPINGS);
  }
}

TEST(RmError, StatusReadsAsTheErrorThatItMeans) {
  EXPECT_EQ(rm_error(GS_NV_ERR_INVALID_CHANNEL, "x").error().code, std::errc::no_such_process);
  EXPECT_EQ(rm_error(GS_NV_ERR_INVALID_CLIENT, "x").error().code, std::errc::no_such_process);
  EXPECT_EQ(rm_error(GS_NV_ERR_INSUFFICIENT_PERMISSIONS, "x").error().code,
            std::errc::operation_not_permitted);
  EXPECT_EQ(rm_error(GS_NV_ERR_NOT_SUPPORTED, "x").error().code, std::errc::not_supported);
  EXPECT_EQ(rm_error(GS_NV_ERR_INVALID_ARGUMENT, "x").error().code, std::errc::invalid_argument);
  EXPECT_EQ(rm_error(0x77, "x").error().code, std::errc::io_error);
  EXPECT_EQ(rm_error(0x77, "x", "GPU 1").error().detail, "GPU 1, driver status 0x77");
}

}  // namespace
}  // namespace gpushare::nvrm
