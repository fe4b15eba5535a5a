// SPDX-License-Identifier: Apache-2.0
// Why gangs are needed: what a data-parallel job gets done when each GPU slices for itself. On two
// H200 such a job had its 38 % of both GPUs under a cap of 40 %, and 3.1 of the 11.7 steps/s that
// are due; with a weight of 300 of 400, 19.9 of 21.9 (docs/driver-facts.md).
#include <gtest/gtest.h>

#include "tests/sched/gangs/gang_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::GangRig;

// The rate of a job of two ranks with these settings beside a busy program on each GPU, the second
// of which has `settings_of_two`.
double rate_of_job(GangRig& rig, const std::vector<Setting>& settings,
                   const std::vector<Setting>& settings_of_two) {
  rig.start("[agent]\ngangs = \"off\"\n");
  const auto& job = rig.add_job("job", settings, {0, 1});
  rig.add_busy("one", {}, 0);
  rig.run_for(3ms);
  rig.add_busy("two", settings_of_two, 1);
  rig.run_for(3s);
  return rig.rate(job, 5s);
}

TEST(NativeSlices, ACappedJobHasItsShareOfBothGpusAndAFractionOfItsSteps) {
  GangRig rig(2);
  const double rate = rate_of_job(rig, {{"max", "40%"}}, {{"weight", "130"}});
  for (const std::size_t rank : {0U, 1U})
    EXPECT_NEAR(rig.record(*rig.programs[rank], static_cast<uint32_t>(rank)).share_permille, 400,
                25);
  EXPECT_LT(rate, 0.6 * 0.4) << "its ranks hardly ever run at the same time";
}

TEST(NativeSlices, AJobOfThreeQuartersLosesLess) {
  GangRig rig(2);
  const double rate = rate_of_job(rig, {{"weight", "300"}}, {});
  EXPECT_LT(rate, 0.95 * 0.75);
  EXPECT_GT(rate, 0.5 * 0.75);
}

}  // namespace
}  // namespace gpushare
