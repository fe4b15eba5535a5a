// SPDX-License-Identifier: Apache-2.0
#include "sched/module/usage_report.h"

#include <gtest/gtest.h>

#include "tests/intercept/kmod/fake_kmod.h"
#include "tests/sched/support/scheduler_rig.h"
#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class UsageReportTest : public ::testing::Test {
 protected:
  // Returns what was last published of a tenant.
  std::optional<gpushare_usage> last(const std::string& tenant) {
    for (auto call = module_.published.rbegin(); call != module_.published.rend(); ++call)
      for (const gpushare_usage& usage : *call)
        if (usage.tenant == tenant) return usage;
    return std::nullopt;
  }
  void start_over() { report_.start_over(rig_.scheduler->state()); }
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

TEST_F(UsageReportTest, OneAboveHasWhatThoseBelowUsed) {
  rig_.start();
  ASSERT_TRUE(rig_.tenants.set("team", std::vector<Setting>{{"max", "60%"}}, true));
  rig_.add_busy("team/a", {{"weight", "100"}});
  const sim::Program& b = rig_.add_busy("team/b", {{"weight", "300"}});
  rig_.add_busy("lab", {});
  rig_.run_for(1s);
  publish();
  rig_.run_for(2s);
  publish();
  const auto team = last("team"), below = last("team/b"), beside = last("team/a");
  ASSERT_TRUE(team && below && beside);
  EXPECT_EQ(team->gpu_time_us, below->gpu_time_us + beside->gpu_time_us);
  EXPECT_EQ(team->by_gpu_us[0], below->by_gpu_us[0] + beside->by_gpu_us[0]);
  EXPECT_NEAR(team->share_permille, 500, 30);
  EXPECT_GT(team->some.total_us, 100'000u) << "somebody below waits";
  // What one that is gone has used stays.
  rig_.machine.model.close_client(b.client);
  rig_.run_for(500ms);
  publish();
  const auto before = last("team");
  ASSERT_TRUE(rig_.tenants.remove("team/b"));
  rig_.run_for(100ms);
  publish();
  EXPECT_GE(last("team")->gpu_time_us, before->gpu_time_us);
  EXPECT_GE(last("team")->by_gpu_us[0], before->by_gpu_us[0]);
  EXPECT_LE(last("team")->gpu_time_us, before->gpu_time_us + 110'000);
  rig_.run_for(1s);
  publish();
  EXPECT_LT(last("team")->gpu_time_us, before->gpu_time_us + 1'200'000) << "and is counted once";
}

// The module's word of a removal comes between the step and this.
TEST_F(UsageReportTest, ATenantThatIsGoneSinceTheStepIsLeftOut) {
  rig_.start();
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  rig_.run_for(1s);
  publish();
  rig_.run_for(200ms);
  ASSERT_TRUE(rig_.tenants.remove("a"));
  publish();
  EXPECT_GT(last("b")->gpu_time_us, 500'000u);
}

// Neither one that is made anew under its name between two reports, nor one that could not be told
// of at first, is lost to those above it or counted twice.
TEST_F(UsageReportTest, WhatIsGoneIsCountedOnceAboveIt) {
  rig_.start();
  ASSERT_TRUE(rig_.tenants.set("team", {}, true));
  const sim::Program& program = rig_.add_busy("team/a", {});
  rig_.run_for(1s);
  publish();
  rig_.machine.model.close_client(program.client);
  rig_.run_for(500ms);
  publish();
  const auto before = last("team");
  ASSERT_TRUE(before && before->gpu_time_us > 500'000);
  ASSERT_TRUE(rig_.tenants.remove("team/a"));
  ASSERT_TRUE(rig_.tenants.set("team/a", {}, true));
  module_.fails = GPUSHARE_IOC_PUBLISH;
  module_.error = EIO;
  for (int i = 0; i < 5; ++i) {
    rig_.run_for(100ms);
    publish();
  }
  module_.fails = 0;
  rig_.run_for(100ms);
  publish();
  EXPECT_EQ(last("team")->gpu_time_us, before->gpu_time_us);
  EXPECT_EQ(last("team/a")->gpu_time_us, 0u);
}

TEST_F(UsageReportTest, TellsOfThrottling) {
  rig_.start();
  rig_.add_busy("a", {{"max", "20%"}});
  rig_.run_for(2s);
  publish();
  EXPECT_GT(last("a")->freezes, 5u);
  EXPECT_GT(last("a")->throttled_us, 1'000'000u);
}

TEST_F(UsageReportTest, TellsOfPeriodsThatACapCut) {
  rig_.start();
  rig_.add_busy("a", {{"max", "20%"}});
  for (int i = 0; i < 40; ++i) {
    rig_.run_for(100ms);
    publish();
  }
  const auto a = last("a");
  ASSERT_TRUE(a);
  EXPECT_NEAR(static_cast<double>(a->periods), 39, 2) << "of 100 ms, in 4 s";
  EXPECT_GT(a->throttled_periods, 20u);
  EXPECT_LE(a->throttled_periods, a->periods);
  EXPECT_NEAR(static_cast<double>(a->some.total_us), 3.1e6, 0.3e6) << "it had 20 % of 4 s";
}

TEST_F(UsageReportTest, TellsOfPeriodsThatACapOfOneGpuCut) {
  rig_.start();
  rig_.add_busy("a", {});
  rig_.tenants.set_gpu_caps(*rig_.tenants.find("a"), {{0, Cap{10ms, 50ms}}});
  for (int i = 0; i < 20; ++i) {
    rig_.run_for(100ms);
    publish();
  }
  EXPECT_NEAR(static_cast<double>(last("a")->periods), 39, 2) << "of 50 ms, in 2 s";
  EXPECT_GT(last("a")->throttled_periods, 20u);
}

TEST_F(UsageReportTest, TellsOfPressure) {
  rig_.start();
  rig_.add_busy("a", {{"weight", "300"}});
  rig_.add_busy("b", {{"weight", "100"}});
  for (int i = 0; i < 40; ++i) {
    rig_.run_for(100ms);
    publish();
  }
  const auto a = last("a"), b = last("b"), none = last("default");
  ASSERT_TRUE(a && b && none);
  EXPECT_EQ(a->periods, 0u) << "it has no cap";
  EXPECT_NEAR(static_cast<double>(a->some.total_us), 1e6, 0.2e6) << "the other's quarter";
  EXPECT_NEAR(static_cast<double>(b->some.total_us), 3e6, 0.3e6);
  EXPECT_EQ(b->some.total_us, b->full.total_us) << "it has one process";
  EXPECT_LT(a->some.avg10, b->some.avg10);
  EXPECT_LE(b->some.avg10, 10'000u);
  EXPECT_EQ(none->some.total_us, 0u);
}

TEST_F(UsageReportTest, TellsWhichGpuWasUsed) {
  rig_.start();
  report_.describe(rig_.gpu.gpus(), Config(rig_.policies));
  rig_.add_busy("a", {});
  rig_.run_for(2s);
  publish();
  const auto a = last("a");
  ASSERT_TRUE(a);
  uint64_t sum = 0;
  for (const uint64_t us : a->by_gpu_us) sum += us;
  EXPECT_GT(sum, 1'300'000u) << "while it is alone, all but what samples have not told yet";
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(a->gpu_time_us), 2);
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
  EXPECT_EQ(module_.published.size(), 1u) << "nothing has run";
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
  tree_.put("tenants/a/turns", "8\n");
  tree_.put("tenants/a/held_us", "9\n");
  tree_.put("tenants/a/stat", "usage_usec 5000000\nnr_periods 90\nnr_throttled 30\n");
  tree_.put("tenants/a/pressure",
            "some avg10=1.00 avg60=2.00 avg300=3.00 total=444\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=333\n");
  rig_.start();
  start_over();
  rig_.add_busy("a", {});
  rig_.run_for(2s);
  publish();
  EXPECT_GT(last("a")->gpu_time_us, 6'300'000u);
  EXPECT_EQ(last("a")->freezes, 7u);
  EXPECT_EQ(last("a")->turns, 8u);
  EXPECT_EQ(last("a")->held_us, 9u);
  EXPECT_EQ(last("a")->periods, 90u);
  EXPECT_EQ(last("a")->throttled_periods, 30u);
  EXPECT_GE(last("a")->some.total_us, 444u);
  EXPECT_GE(last("a")->full.total_us, 333u);
}

// The agent's own counters go on as well, from what was published in the control plane last.
TEST_F(UsageReportTest, WhatAnAgentBeforeCountedIsNotToldTwice) {
  rig_.start();
  rig_.add_busy("a", {{"max", "50%"}});
  rig_.run_for(3s);
  publish();
  const auto before = last("a");
  ASSERT_TRUE(before && before->freezes > 0);
  ASSERT_TRUE(tree_.create("a"));
  tree_.put("tenants/a/gpu_time_us", std::to_string(before->gpu_time_us) + "\n");
  tree_.put("tenants/a/throttled_us", std::to_string(before->throttled_us) + "\n");
  tree_.put("tenants/a/freezes", std::to_string(before->freezes) + "\n");
  rig_.kill();
  rig_.start();
  start_over();
  rig_.run_for(2s);
  publish();
  const auto after = last("a");
  ASSERT_TRUE(after);
  // The program is found again after a while, and what it did alone is known 0.2 to 0.6 s later.
  EXPECT_GT(after->gpu_time_us, before->gpu_time_us + 400'000);
  EXPECT_LT(after->gpu_time_us, before->gpu_time_us + 1'100'000);
  EXPECT_GT(after->throttled_us, before->throttled_us + 200'000);
  EXPECT_LT(after->throttled_us, before->throttled_us + 1'100'000);
  EXPECT_LT(after->freezes, before->freezes + 50);
  EXPECT_LE(after->throttled_periods, 12u) << "of 100 ms, in 1 s";
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
  Config config(rig_.policies);
  report_.describe(rig_.gpu.gpus(), config);
  EXPECT_EQ(module_.gpus.size(), rig_.gpu.gpus().size());
  EXPECT_STREQ(module_.gpus[0].sharing, "time-slicing");
  EXPECT_STREQ(module_.gpus[0].policy, "fair");
  config.gpus.emplace(0, GpuConfig{.policy = PolicyChoice(*find_policy(rig_.policies, "srtf")),
                                   .is_spatial = true});
  report_.describe(rig_.gpu.gpus(), config);
  EXPECT_STREQ(module_.gpus.back().sharing, "spatial");
  EXPECT_STREQ(module_.gpus.back().policy, "srtf");
  EXPECT_EQ(module_.policy, "srtf");
}

TEST_F(UsageReportTest, TellsOfTurns) {
  rig_.start(true, "[gpu.0]\npolicy = 'turns'\n");
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  rig_.run_for(4s);
  publish();
  const auto a = last("a"), b = last("b"), none = last("default");
  ASSERT_TRUE(a && b && none);
  EXPECT_GT(a->turns, 5u);
  EXPECT_NEAR(static_cast<double>(a->turns), static_cast<double>(b->turns), 1);
  EXPECT_NEAR(static_cast<double>(a->held_us + b->held_us), 4e6, 0.3e6) << "one of them waits";
  EXPECT_EQ(none->turns + none->held_us, 0u);
}

}  // namespace
}  // namespace gpushare
