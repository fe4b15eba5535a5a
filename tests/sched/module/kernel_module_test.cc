// SPDX-License-Identifier: Apache-2.0
// The agent's side of the kernel module, against a ring and a directory of the test.
#include "sched/module/kernel_module.h"

#include <gtest/gtest.h>

#include "sched/module/kernel_tenants.h"
#include "sched/module/usage_report.h"
#include "tests/intercept/kmod/fake_kmod.h"
#include "tests/sched/support/scheduler_rig.h"
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

class UsageReportTest : public ::testing::Test {
 protected:
  // What was last published of a tenant.
  std::optional<gpushare_usage> last(const std::string& tenant) {
    for (auto call = module_.published.rbegin(); call != module_.published.rend(); ++call)
      for (const gpushare_usage& usage : *call)
        if (usage.tenant == tenant) return usage;
    return std::nullopt;
  }
  void publish() { report_.publish(rig_.machine.model.now(), rig_.scheduler->state()); }

  test::SchedulerRig rig_;
  test::FakeKmod module_;
  test::PlainSysfs tree_;
  UsageReport report_{module_, tree_};
};

TEST_F(UsageReportTest, TellsWhatEachTenantUsed) {
  rig_.start();
  rig_.add_busy("a", {{"weight", "300"}});
  rig_.add_busy("b", {{"weight", "100"}});
  rig_.run_for(3s);
  publish();
  const auto a = last("a"), b = last("b");
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(static_cast<double>(a->gpu_time_us), 2.25e6, 0.15e6);
  EXPECT_NEAR(static_cast<double>(b->gpu_time_us), 0.75e6, 0.15e6);
  EXPECT_NEAR(a->share_permille, 750, 40);
  EXPECT_EQ(last("default")->share_permille, GPUSHARE_UNKNOWN);
}

TEST_F(UsageReportTest, TellsOfThrottling) {
  rig_.start();
  rig_.add_busy("a", {{"max", "20%"}});
  rig_.run_for(2s);
  publish();
  EXPECT_GT(last("a")->freezes, 5u);
  EXPECT_GT(last("a")->throttled_us, 1'000'000u);
}

TEST_F(UsageReportTest, OnlyWhatChangedAndNotTooOften) {
  rig_.start();
  rig_.run_for(1s);
  publish();
  EXPECT_EQ(module_.published.size(), 1u);
  rig_.run_for(50ms);
  publish();
  EXPECT_EQ(module_.published.size(), 1u);
  rig_.run_for(100ms);
  publish();
  EXPECT_EQ(module_.published.size(), 1u) << "nobody did anything";
  ASSERT_TRUE(rig_.tenants.set("late", {}, true));
  rig_.run_for(100ms);
  publish();
  ASSERT_EQ(module_.published.size(), 2u);
  ASSERT_EQ(module_.published[1].size(), 1u);
  EXPECT_STREQ(module_.published[1][0].tenant, "late");
}

TEST_F(UsageReportTest, CountsOnWhereAnAgentBeforeStopped) {
  ASSERT_TRUE(rig_.tenants.set("a", {}, true));
  ASSERT_TRUE(tree_.create("a"));
  tree_.put("tenants/a/gpu_time_us", "5000000\n");
  tree_.put("tenants/a/freezes", "7\n");
  report_.start_over(rig_.tenants);
  rig_.start();
  rig_.add_busy("a", {});
  rig_.run_for(1s);
  publish();
  EXPECT_GT(last("a")->gpu_time_us, 5'500'000u);
  EXPECT_EQ(last("a")->freezes, 7u);
}

TEST_F(UsageReportTest, AFailureIsTriedAgain) {
  rig_.start();
  rig_.run_for(1s);
  module_.fails = GPUSHARE_IOC_PUBLISH;
  module_.error = EIO;
  publish();
  EXPECT_TRUE(module_.published.empty());
  module_.fails = 0;
  rig_.run_for(100ms);
  publish();
  EXPECT_EQ(module_.published.size(), 1u);
}

TEST_F(UsageReportTest, DescribesGpusAndPolicy) {
  report_.describe(rig_.gpu.gpus(), "fair", {});
  EXPECT_EQ(module_.gpus.size(), rig_.gpu.gpus().size());
  EXPECT_STREQ(module_.gpus[0].sharing, "time-slicing");
  report_.describe(rig_.gpu.gpus(), "fair", {0});
  EXPECT_STREQ(module_.gpus.back().sharing, "spatial");
  EXPECT_EQ(module_.policy, "fair");
}

}  // namespace
}  // namespace gpushare
