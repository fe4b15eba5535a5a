// SPDX-License-Identifier: Apache-2.0
// Gangs beside programs that make little use of their shares, are frozen, or go before them: what
// these leave is everybody's, and nobody else pays for it on another GPU.
#include <gtest/gtest.h>

#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::JobOnTwoGpus;

constexpr double kLeastOfDue = 0.96;  // of the steps

// A job on both of two GPUs, beside a program on each.
struct JobAndTwo : JobOnTwoGpus {
  JobAndTwo() {
    add_busy("one", {}, 0);
    add_busy("two", {}, 1);
    run_for(3s);
  }
};

struct Notebooks {
  const char *description, *weight;
  int count;
  double least = kLeastOfDue;
};
class GangBesideNotebooks : public ::testing::TestWithParam<Notebooks> {};

TEST_P(GangBesideNotebooks, HasItsPartOfWhatTheyLeave) {
  JobAndTwo rig;
  std::vector<std::unique_ptr<sim::PeriodicKernel>> notebooks;
  for (int i = 0; i < GetParam().count; ++i)
    notebooks.push_back(std::make_unique<sim::PeriodicKernel>(
        rig.add("notebook" + std::to_string(i), {{"weight", GetParam().weight}}, 0), 500us, 20ms));
  rig.run_for(5s);
  const double left = 1 - 0.025 * GetParam().count;
  const uint64_t before = rig.job.steps();
  const std::vector<double> shares = rig.measure(5s);
  EXPECT_GE(rig.rate_since(rig.job, before, 5s), GetParam().least * left / 2);
  EXPECT_NEAR(shares[2], left / 2, 0.03) << "one";
  EXPECT_NEAR(shares[3], 1 - left / 2, 0.03) << "two, on the other GPU";
}

// Whose kernels come between those of the gang, which then wait on the other GPU, too.
INSTANTIATE_TEST_SUITE_P(All, GangBesideNotebooks,
                         ::testing::Values(Notebooks{"one", "100", 1},
                                           Notebooks{"heavy", "1000", 1},
                                           Notebooks{"four", "100", 4, 0.9}),
                         [](const auto& row) { return row.param.description; });

TEST(GangAndAFrozenNeighbour, HasWhatTheOtherGpuGivesIt) {
  JobAndTwo rig;
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[2]->process, true));
  rig.run_for(3s);
  const uint64_t before = rig.job.steps();
  const std::vector<double> shares = rig.measure(5s);
  EXPECT_GE(rig.rate_since(rig.job, before, 5s), kLeastOfDue * 0.5);
  EXPECT_NEAR(shares[3], 0.5, 0.03);
}

// One of a lower class on one of its GPUs has its turns in those of the others there.
TEST(GangOfAHigherClass, DoesNotWaitForTheTurnsOfAnother) {
  test::GangRig rig(3);
  rig.start();
  const std::vector<Setting> high{{"priority", "high"}, {"weight", "300"}};
  const sim::DataParallel& first = rig.add_job("high", high, {0, 1});
  rig.add_busy("other", {{"priority", "high"}}, 0);
  rig.add_job("low", {{"priority", "idle"}}, {1, 2});
  rig.add_busy("idle", {{"priority", "idle"}}, 2);
  rig.run_for(3s);
  EXPECT_GE(rig.rate(first, 8s), kLeastOfDue * 0.75);
}

// What it takes on one GPU is nothing that the gang is owed on the other one.
TEST(GangBelowAHigherClass, TakesNoMoreThanItsShareOfTheOtherGpu) {
  JobAndTwo rig;
  const sim::PeriodicKernel high(rig.add("high", {{"priority", "high"}}, 0), 2500us, 2500us);
  rig.run_for(3s);
  EXPECT_GE(rig.measure(5s)[3], 0.46);
}

}  // namespace
}  // namespace gpushare
