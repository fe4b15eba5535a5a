// SPDX-License-Identifier: Apache-2.0
// Collective kernels of the simulated machine: they get on only while all of their ranks run.
#include <gtest/gtest.h>

#include "tests/intercept/sim/programs.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kJob = 7;

class CollectiveTest : public ::testing::Test {
 protected:
  bool has_finished(uint64_t sequence) const {
    return std::ranges::find(machine_.finished, sequence, &Completion::sequence) !=
           machine_.finished.end();
  }

  Machine machine_{2};
  Program one_{machine_, 100, 0}, two_{machine_, 200, 1};
};

TEST_F(CollectiveTest, SpinsUntilItsPeerCameAndThenTakesItsTime) {
  const uint64_t first = one_.collective(5ms, kJob);
  machine_.run_for(100ms);
  EXPECT_EQ(one_.executed(first), 0ns);
  EXPECT_FALSE(has_finished(first));
  machine_.run_for(1s);
  for (int i = 0; i < 2; ++i) {  // a sample comes late
    (void)machine_.model.utilisation(0);
    machine_.run_for(1s);
  }
  EXPECT_GT(machine_.model.utilisation(0).of.at(0).sm_fraction, 0.99) << "it occupies its GPU";
  const uint64_t second = two_.collective(5ms, kJob);
  machine_.run_for(4ms);
  EXPECT_FALSE(has_finished(first));
  machine_.run_for(2ms);
  EXPECT_TRUE(has_finished(first));
  EXPECT_TRUE(has_finished(second));
}

TEST_F(CollectiveTest, StandsStillWhileOneOfItsRanksIsFrozen) {
  const uint64_t first = one_.collective(50ms, kJob);
  two_.collective(50ms, kJob);
  machine_.run_for(10ms);
  ASSERT_TRUE(machine_.model.freeze(1, two_.channels()));
  machine_.run_for(1ms);
  const Nanos before = one_.executed(first);
  EXPECT_GT(before, 8ms);
  machine_.run_for(1s);
  EXPECT_EQ(one_.executed(first), before);
  ASSERT_TRUE(machine_.model.thaw(1, two_.channels()));
  machine_.run_for(50ms);
  EXPECT_TRUE(has_finished(first));
}

TEST_F(CollectiveTest, OneThatHasDoneItsPartKeepsNobodyWaiting) {
  Program light(machine_, 300, 1);
  light.endless();
  const uint64_t first = one_.collective(10ms, kJob), second = two_.collective(10ms, kJob);
  machine_.run_for(40ms);
  EXPECT_TRUE(has_finished(first)) << "shares its GPU with one half as fast";
  EXPECT_TRUE(has_finished(second));
}

TEST_F(CollectiveTest, ThoseOfACommunicatorMeetInTheirOrder) {
  const uint64_t first = one_.collective(1ms, kJob), second = one_.collective(1ms, kJob);
  two_.collective(1ms, kJob);
  machine_.run_for(10ms);
  EXPECT_TRUE(has_finished(first));
  EXPECT_FALSE(has_finished(second));
  two_.collective(1ms, kJob + 1);
  machine_.run_for(10ms);
  EXPECT_FALSE(has_finished(second)) << "another communicator";
}

TEST_F(CollectiveTest, WhoDiesLeavesItsPeerSpinning) {
  const uint64_t first = one_.collective(1ms, kJob);
  two_.kernel(1s);
  two_.collective(1ms, kJob);
  machine_.run_for(10ms);
  machine_.model.close_client(two_.client);
  machine_.run_for(1s);
  EXPECT_FALSE(has_finished(first));
  machine_.model.close_client(one_.client);
  machine_.run_for(1s);
}

TEST_F(CollectiveTest, MalformedOnesAreRefused) {
  for (const auto& [ranks, communicator] :
       {std::pair{1U, kJob}, std::pair{kMaxRanks + 1, kJob}, std::pair{2U, uint64_t{0}}}) {
    const uint64_t work = one_.collective(1ms, communicator, ranks);
    ASSERT_TRUE(has_finished(work));
    EXPECT_EQ(machine_.finished.back().status, static_cast<uint32_t>(EINVAL));
  }
}

TEST_F(CollectiveTest, AJobOfTwoRanksTakesAsLongAsItsStepsAlone) {
  const DataParallel job({&one_, &two_}, kJob);
  machine_.run_for(3400ms);
  EXPECT_NEAR(static_cast<double>(job.steps()), 3.4 / 0.03405, 1);
}

// One GPU begins with the rank, the other with its neighbour, and all have work for ever.
bool do_meet(Nanos slower_change) {
  GpuModel slower;
  slower.slower_change = slower_change;
  Machine machine({GpuModel{}, slower});
  Program one(machine, 100, 0), beside_one(machine, 300, 0), beside_two(machine, 400, 1),
      two(machine, 200, 1);
  beside_two.endless();
  const uint64_t first = one.collective(2ms, kJob);
  two.collective(2ms, kJob);
  beside_one.endless();
  machine.run_for(2s);
  return std::ranges::find(machine.finished, first, &Completion::sequence) !=
         machine.finished.end();
}

TEST(Collective, RanksOutOfStepMeetWhereTheirGpusAreNotTheSame) {
  EXPECT_FALSE(do_meet(0ns)) << "the very same turns stay out of step";
  EXPECT_TRUE(do_meet(2us));
}

}  // namespace
}  // namespace gpushare::sim
