// SPDX-License-Identifier: Apache-2.0
// What programs do that is hard for a library which moves their streams (hostile.cc), on the
// simulated GPU, while their partition changes three times a millisecond: nothing hangs, nothing is
// lost, and what the slot says is so.
#include <random>

#include "tests/intercept/shim/on_the_simulated_gpu.h"
#include "tests/support/sanitized.h"

namespace gpushare::test {
namespace {

struct Case {
  const char* what;
  std::vector<std::string> more;
};

// The sanitizers end a program that loads a library deeply bound: it would go past them, too.
constexpr bool kMayBindDeeply = !GS_IS_SANITIZED;
constexpr char kWhyNotDeeply[] = "a sanitizer lets no library be loaded with RTLD_DEEPBIND";

class Hostile : public OnTheSimulatedGpu, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    if (!kMayBindDeeply && std::string_view(GetParam().what) == "deep")
      GTEST_SKIP() << kWhyNotDeeply;
  }
  std::unique_ptr<Child> start_it(const ShimRig& rig, const std::vector<std::string>& more) const {
    std::vector<std::string> command{"hostile", "--what", GetParam().what};
    command.insert(command.end(), GetParam().more.begin(), GetParam().more.end());
    command.insert(command.end(), more.begin(), more.end());
    return start(command, &rig);
  }
};

TEST_P(Hostile, IsRightUnderMoves) {
  std::mt19937 random(11);
  for (const bool announces : {false, true}) {
    ShimRig rig(kShimGate | kShimPartitions, {{kPci, 0b11}});
    const auto program = start_it(rig, {"--seed", std::to_string(1 + announces)});
    expect_right_under_moves(rig, *program, random, announces);
  }
}

TEST_P(Hostile, IsRightUnderMovesAndCredit) {
  std::mt19937 random(12);
  ShimRig rig(kShimGate | kShimPartitions | kShimCredit, {{kPci, 0b11}});
  const auto program = start_it(rig, {});
  while (!program->has_ended()) {
    const uint64_t groups = random() % 14;
    const bool is_closed = random() % 2 == 0;
    rig.with_all_slots([&](ShimSlot& slot) {
      slot.gpus[0].wanted.store(groups);
      is_closed ? ShimHost::close_gate(slot) : ShimHost::open_gate(slot);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_EQ(last_line(success_of(*program))["verified"], true);
}

INSTANTIATE_TEST_SUITE_P(
    All, Hostile,
    testing::Values(Case{"streams", {"--rounds", "30", "--most", "200"}},
                    Case{"resets", {"--rounds", "30", "--most", "60"}},
                    Case{"forks", {"--rounds", "150", "--pause-us", "500"}},
                    Case{"functions", {"--rounds", "60", "--most", "60", "--pause-us", "300"}},
                    Case{"graphs", {"--rounds", "60", "--most", "20"}},
                    Case{"built", {"--rounds", "30", "--most", "20"}},
                    Case{"own", {"--rounds", "500"}},
                    Case{"joins", {"--rounds", "60", "--pause-us", "200"}},
                    Case{"deep", {"--rounds", "30", "--most", "100"}}),
    [](const auto& cell) { return std::string(cell.param.what); });

TEST_F(OnTheSimulatedGpu, AProgramWithAContextOfItsOwnAloneSaysWhyItDoesNotFollow) {
  ShimRig rig(kShimPartitions, {{kPci, 0b11}});
  const auto program =
      start({"hostile", "--what", "own", "--rounds", "100000", "--pause-us", "1000"}, &rig);
  ASSERT_TRUE(rig.launches_beyond(20));
  rig.with_slot(program->pid(), [&](ShimSlot& slot) {
    EXPECT_EQ(slot.gpus[0].applied.load(), 0u);
    EXPECT_EQ(slot.gpus[0].follows.load(), ShimFollows::kOwnContexts);
    EXPECT_GT(slot.home_launches[0].load(), 10u);
  });
}

// Otherwise what the library puts into a stream by itself would be in no order with it.
TEST_F(OnTheSimulatedGpu, AProgramWithADeeplyBoundLibraryLeavesItsPartitionAndSaysWhy) {
  if (!kMayBindDeeply) GTEST_SKIP() << kWhyNotDeeply;
  ShimRig rig(kShimPartitions, {{kPci, 0b11}});
  const auto program = start({"hostile", "--what", "deep", "--rounds", "1000", "--most", "20",
                              "--pause-us", "1000", "--linger-ms", "100000"},
                             &rig);
  const auto follows = [&] {
    ShimFollows said{};
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { said = slot.gpus[0].follows.load(); });
    return said;
  };
  ASSERT_TRUE(eventually([&] { return follows() == ShimFollows::kFollows; }));
  ASSERT_TRUE(eventually([&] { return follows() == ShimFollows::kBypassed; }));
  uint64_t at_home = 0;
  rig.with_slot(program->pid(), [&](ShimSlot& slot) { at_home = slot.home_launches[0].load(); });
  EXPECT_TRUE(eventually([&] {
    uint64_t now = 0;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { now = slot.home_launches[0].load(); });
    return now > at_home + 20;
  }));
}

// The last waits have no write behind them; the program has waited for all of its work.
TEST_F(OnTheSimulatedGpu, WhoHasWaitedForItsWorkHasNothingInLine) {
  for (const char* what : {"graphs", "streams"}) {
    ShimRig rig(kShimGate | kShimCredit, {{kPci, 0}});
    const auto program = start(
        {"hostile", "--what", what, "--rounds", "3", "--most", "400", "--linger-ms", "100000"},
        &rig);
    ASSERT_TRUE(eventually([&] { return !program->output().empty(); }));
    rig.with_slot(program->pid(), [&](ShimSlot& slot) {
      EXPECT_GT(slot.credit.issued.load(), 3u) << what;
      EXPECT_EQ(slot.credit.issued.load(), slot.credit.reached.load()) << what;
    });
  }
}

}  // namespace
}  // namespace gpushare::test
