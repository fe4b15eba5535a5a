// SPDX-License-Identifier: Apache-2.0
// The agent's side of the kernel module, with a ring and a folder that the test makes.
#include "sched/module/kernel_module.h"

#include <gtest/gtest.h>

#include "sched/registry/registry.h"
#include "tests/intercept/kmod/fake_kmod.h"
#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

TEST(KernelModule, AMachineWithoutItIsNoProblem) {
  KernelModule none = KernelModule::find({"/nonexistent/device", "/nonexistent/sysfs"}, -1);
  EXPECT_EQ(none.tree(), nullptr);
  EXPECT_EQ(none.ring(), nullptr);
  EXPECT_EQ(none.problem(), "");
  EXPECT_FALSE(none.sees_the_driver());
  KernelModule unused = KernelModule::find({}, -1);
  EXPECT_EQ(unused.problem(), "");
}

TEST(KernelModule, SysfsWithoutItsDeviceIsAProblemButIsUsed) {
  test::PlainSysfs tree;
  KernelModule module = KernelModule::find({"/nonexistent/device", tree.root()}, -1);
  EXPECT_NE(module.tree(), nullptr);
  EXPECT_EQ(module.ring(), nullptr);
  EXPECT_NE(module.problem(), "");
  EXPECT_FALSE(module.sees_the_driver());
}

TEST(KernelModule, SomethingElseInItsPlaceIsAProblem) {
  KernelModule module = KernelModule::find({"/dev/null", ""}, -1);
  EXPECT_EQ(module.device(), nullptr);
  EXPECT_NE(module.problem().find("ask the kernel module for its version"), std::string::npos);
}

// A registry that is fed by the module equals one that is fed by the probe's events.
TEST(KernelModule, ItsEventsMakeTheSameRegistry) {
  const std::vector<GpuInfo> gpus(1);
  Registry by_probe(gpus), by_module(gpus);
  test::FakeKmod module(64);
  auto observer = KmodObserver::start(module).value();
  const auto object = [&](gpushare_event_kind kind, uint32_t parent, uint32_t handle) {
    gpushare_event event = test::kmod_record(kind);
    event.object = {.client = 1000,
                    .parent = parent,
                    .object = handle,
                    .class_id = 0xC86F,
                    .bytes = 1 << 20,
                    .instance = 0,
                    .engine_type = 1,
                    .fd = 5,
                    .reserved = {}};
    event.flags = kind == GPUSHARE_EVENT_MEMORY_ALLOCATED ? GPUSHARE_EVENT_VIDEO : 0;
    module.push(event);
  };
  module.push(test::kmod_opened("default"));
  object(GPUSHARE_EVENT_CLIENT_CREATED, 0, 1000);
  object(GPUSHARE_EVENT_DEVICE_CREATED, 1000, 1);
  object(GPUSHARE_EVENT_GROUP_CREATED, 1, 2);
  object(GPUSHARE_EVENT_CHANNEL_CREATED, 2, 3);
  object(GPUSHARE_EVENT_MEMORY_ALLOCATED, 1, 4);
  (void)observer->drain([&](DriverEvent&& event) { by_module.apply(event); });

  const ProcessId process{test::kPid, test::kTicks};
  const auto seen = [&](auto what) { by_probe.apply({Time(1us), process, what}); };
  seen(ProcessOpened{7, 42, 1000, "train"});
  seen(ClientCreated{1000, 5});
  seen(DeviceCreated{1000, 1, 0});
  seen(GroupCreated{1000, 1, 2, Engine::kGraphics, 5});
  seen(ChannelCreated{1000, 2, 3, 0xC86F});
  seen(MemoryAllocated{1000, 1, 4, 1 << 20, true});

  const Holder* probed = by_probe.holder(process, 0);
  const Holder* told = by_module.holder(process, 0);
  ASSERT_TRUE(probed != nullptr && told != nullptr);
  ASSERT_EQ(told->groups.size(), probed->groups.size());
  EXPECT_EQ(told->groups[0].ref, probed->groups[0].ref);
  EXPECT_EQ(told->groups[0].channels, probed->groups[0].channels);
  EXPECT_EQ(told->memory_bytes, probed->memory_bytes);
  EXPECT_EQ(by_module.find(test::kPid)->uid, by_probe.find(test::kPid)->uid);
  EXPECT_EQ(by_module.find(test::kPid)->command, by_probe.find(test::kPid)->command);
}

}  // namespace
}  // namespace gpushare
