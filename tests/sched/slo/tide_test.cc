// SPDX-License-Identifier: Apache-2.0
// Two heavy inference functions and twelve light ones, much as bench/gpu/spatial/functions.py
// measured them alone on an H200, on one simulated GPU.
#include <gtest/gtest.h>

#include "sched/slo/policy.h"
#include "tests/sched/support/slo_tide.h"
#include "tests/sched/support/slo_world.h"

namespace gpushare {
namespace {

constexpr size_t kHeavy = 2;

struct Function {
  double ms, serial, width, kernels;
};
const std::vector<Function> kFunctions{{2.8, .05, 15, 14}, {2.6, .05, 15, 26}, {1.9, .8, 2, 150},
                                       {2.4, .8, 2, 150},  {3.7, .8, 3, 300},  {.5, .7, 4, 70},
                                       {.69, .4, 12, 26},  {.59, .3, 15, 22},  {.47, .3, 15, 18},
                                       {.54, .25, 15, 14}, {1.2, .6, 8, 80},   {1.4, .55, 10, 80},
                                       {.83, .5, 10, 55},  {.70, .4, 12, 42}};

class SloTideTest : public ::testing::Test {
 protected:
  // `load`: of the GPU's time on average; half of it by the heavy ones where they have a target.
  std::unique_ptr<Tide> make(double load, double target, bool have_heavy_a_target) {
    std::vector<TideService> all;
    for (size_t i = 0; i < kFunctions.size(); ++i) {
      const Function& one = kFunctions[i];
      const double seconds = one.ms * 1e-3, part = have_heavy_a_target ? load / 2 : load;
      const size_t sharers = i < kHeavy ? kHeavy : kFunctions.size() - kHeavy;
      const bool has_target = i >= kHeavy || have_heavy_a_target;
      all.push_back({.seconds = seconds,
                     .serial = one.serial,
                     .width = one.width,
                     .kernels = one.kernels,
                     .slo = has_target ? seconds * target : 0,
                     .rate = part / static_cast<double>(sharers) / seconds});
    }
    return std::make_unique<Tide>(rig_, all);
  }
  static int missed(Tide& tide) {
    int count = 0;
    for (size_t i = 0; i < kFunctions.size(); ++i) {
      if (tide.slo(i) == 0) continue;
      const Tide::Answers seen = tide.take_answers(i);
      EXPECT_GT(seen.count, 0u);
      count += seen.mean() > tide.slo(i);
    }
    return count;
  }
  test::SpatialRig rig_{
      {kWorldGpu},
      [](const GpuView& gpu) { return std::make_unique<SloPolicy>(gpu, FairOptions{}, nullptr); },
      kShimFeatures};
};

TEST_F(SloTideTest, UnderSteadyLoadAllMeetTheirTargets) {
  const auto tide = make(0.4, 4, true);
  tide->run(30, 1);
  missed(*tide);
  tide->run(60, 1);
  EXPECT_EQ(missed(*tide), 0);
  for (size_t i = kHeavy; i < kFunctions.size(); ++i)
    EXPECT_NE(tide->partition(i).partition, tide->partition(0).partition)
        << "small kernels behind large ones: " << i;
}

// The light ones meet their targets at high tide, and when it comes; the heavy ones have the rest.
TEST_F(SloTideTest, WorkWithoutEndHasWhatServicesLeaveWhenTheirLoadFalls) {
  const auto tide = make(0.25, 5, false);
  for (int i = 0; i < 2; ++i) {
    tide->run(20, 1.8);
    tide->run(20, 0.2);
  }
  missed(*tide);
  uint64_t at_high = 0, at_low = 0;
  tide->take_answers(0), tide->take_answers(1);
  for (int i = 0; i < 2; ++i) {
    tide->run(20, 1.8);
    at_high += tide->take_answers(0).count + tide->take_answers(1).count;
    tide->run(20, 0.2);
    at_low += tide->take_answers(0).count + tide->take_answers(1).count;
  }
  EXPECT_EQ(missed(*tide), 0);
  EXPECT_GT(at_high, 0u);
  EXPECT_GT(at_low, at_high + at_high / 4);
  EXPECT_EQ(tide->partition(0).sharers, 1u) << "each in a part of its own, by weight";
}

}  // namespace
}  // namespace gpushare
