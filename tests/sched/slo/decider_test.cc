// SPDX-License-Identifier: Apache-2.0
// Decisions that are made beside the plan: the same as in it, and until one is there the last
// holds.
#include "sched/slo/decider.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "sched/slo/policy.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Decides at once, and says so when it is told to.
class LateDecider final : public SloDecider {
 public:
  void begin(std::vector<SloTenant> tenants, std::vector<double> targets) override {
    sizer_->begin(std::move(tenants), std::move(targets));
  }
  bool is_busy() const override { return sizer_->is_busy(); }
  std::optional<Decided> take() override { return is_late ? std::nullopt : sizer_->take(); }
  bool is_late = false;

 private:
  const std::unique_ptr<SloDecider> sizer_ = make_slo_decider(15, SloDecisions::kInPlan);
};

class SloDeciderTest : public ::testing::Test {
 protected:
  // What is planned with these tenants, a process of each.
  std::vector<uint32_t> plan(const std::vector<uint32_t>& tenants) {
    std::vector<TenantView> views;
    std::vector<ProcessView> processes;
    for (const uint32_t id : tenants) {
      views.push_back({.id = id, .slo = 10ms, .has_shim = true});
      processes.push_back(
          {.id = id, .process = {static_cast<pid_t>(100 + id), 1}, .tenant = id, .has_shim = true});
    }
    now_ += 10ms;
    last_ = policy_.plan({.now = now_, .tenants = views, .processes = processes, .gpu = gpu_});
    std::vector<uint32_t> planned;
    for (const PlannedPartition& partition : last_.partitions)
      planned.insert(planned.end(), partition.tenants.begin(), partition.tenants.end());
    std::ranges::sort(planned);
    return planned;
  }

  const GpuView gpu_{.index = 0, .name = "x", .geometry = geometry_of(132), .is_spatial = true};
  LateDecider* const decider_ = new LateDecider;  // the policy's
  SloPolicy policy_{gpu_, FairOptions{}, nullptr, std::unique_ptr<SloDecider>(decider_)};
  Time now_{1s};
  Plan last_;
};

using Ids = std::vector<uint32_t>;

TEST_F(SloDeciderTest, WhileADecisionIsUnderWayTheLastOneHoldsForThoseWhoAreStillThere) {
  EXPECT_EQ(plan({1, 2}), (Ids{1, 2}));
  decider_->is_late = true;
  EXPECT_EQ(plan({1, 2, 3}), (Ids{1, 2}));
  EXPECT_LE(last_.next, now_ + SloPolicy::kLook) << "it asks again soon";
  EXPECT_EQ(plan({1, 3}), (Ids{1})) << "who is gone gives up its part at once";
  EXPECT_EQ(plan({3}), (Ids{}));
  decider_->is_late = false;
  EXPECT_EQ(plan({3}), (Ids{3})) << "the decision was made for others as well";
  EXPECT_EQ(plan({3, 4}), (Ids{3, 4}));
}

TEST_F(SloDeciderTest, AMeasuredRoundThatFellDueMeanwhileIsMadeUpFor) {
  plan({1, 2});
  decider_->is_late = true;
  now_ += 2s;
  plan({1, 2, 3});
  EXPECT_TRUE(decider_->is_busy());
  now_ += 2s;
  plan({1, 2, 3});
  decider_->is_late = false;
  EXPECT_EQ(plan({1, 2, 3}), (Ids{1, 2, 3}));
  EXPECT_FALSE(decider_->is_busy());
}

TEST(SloDecider, ADecisionAsideIsTheSameAsInThePlan) {
  const auto aside = make_slo_decider(15, SloDecisions::kAside);
  const auto in_plan = make_slo_decider(15, SloDecisions::kInPlan);
  for (int round = 0; round < 5; ++round) {
    std::vector<SloTenant> tenants;
    for (uint32_t id = 0; id < 3 * SloDecider::kFew; ++id) {
      SloTenant& tenant = tenants.emplace_back();
      tenant.id = id;
      tenant.slo = Nanos(1ms * (5 + id));
      tenant.groups = round == 0 ? 0 : 1 + id % 3;
      tenant.iterations = 100;
      tenant.latency = 0.002 + 0.0001 * id;
      tenant.service = 0.001;
      tenant.throughput = tenant.arrivals = 20;
    }
    const std::vector<double> targets(tenants.size(), 0.01);
    aside->begin(tenants, targets);
    EXPECT_TRUE(aside->is_busy());
    in_plan->begin(tenants, targets);
    std::optional<SloDecider::Decided> decided;
    for (const Time until = MonotonicClock().now() + 60s;
         !decided && MonotonicClock().now() < until; std::this_thread::sleep_for(1ms))
      decided = aside->take();
    ASSERT_TRUE(decided);
    EXPECT_FALSE(aside->is_busy());
    const auto other = in_plan->take();
    EXPECT_EQ(decided->shares, other->shares);
    EXPECT_EQ(decided->longest_services, other->longest_services);
  }
}

}  // namespace
}  // namespace gpushare
