// SPDX-License-Identifier: Apache-2.0
// Graphs in partitions, on the simulated GPU: they are where the program's partition is, however
// they were made, and no launch of one is lost, doubled, early or changed by that.
#include <random>
#include <sstream>

#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

// A program that launches a graph for ever, by how that was made.
std::vector<std::string> endless(const char* by) {
  return {"sms", "--launches", "1000000", "--units", "20", "--pause-us", "300", "--by", by};
}

class GraphsInPartitions : public OnTheSimulatedGpu,
                           public testing::WithParamInterface<const char*> {
 protected:
  static uint64_t left(ShimRig& rig, const Child& program) {
    uint64_t left = 0;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { left = slot.home_launches[0].load(); });
    return left;
  }
};

TEST_P(GraphsInPartitions, RunInTheFirstPartition) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  const Json line = last_line(succeed({"sms", "--launches", "3", "--by", GetParam()}, &rig));
  EXPECT_EQ(line["least"], 16);
  EXPECT_EQ(line["most"], 16);
}

// The graph is made once, in the first of the partitions.
TEST_P(GraphsInPartitions, FollowIntoEveryOther) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program =
      start({"sms", "--launches", "6000", "--units", "20", "--pause-us", "300", "--by", GetParam()},
            &rig);
  // A copy is made at most so often that it takes 5 % of the time.
  const auto has_run_there = [&] {
    const uint64_t before = rig.launches_of_all();
    return eventually([&] { return rig.launches_of_all() > before + 60 || program->has_ended(); });
  };
  EXPECT_TRUE(rig.launches_beyond(0));
  for (const uint64_t groups : {0b1, 0b110, 0, 0b1001}) {
    EXPECT_TRUE(goes_to(rig, *program, groups)) << groups;
    EXPECT_TRUE(has_run_there());
  }
  const uint64_t left_before = left(rig, *program);
  EXPECT_TRUE(has_run_there());
  EXPECT_EQ(left(rig, *program), left_before) << "who is there does not count as leaving";
  const Outcome outcome = success_of(*program);
  std::istringstream lines(outcome.out);
  std::vector<int> seen;
  for (std::string text; std::getline(lines, text);)
    if (const Json line = Json::parse(text);
        line.contains("sms") && line["sms"] != 0 && (seen.empty() || seen.back() != line["sms"]))
      seen.push_back(line["sms"]);
  ASSERT_GE(seen.size(), 4u);
  EXPECT_EQ(std::vector<int>(seen.end() - 3, seen.end()), (std::vector<int>{16, 132, 16}))
      << outcome.out.substr(0, 2000);
}

INSTANTIATE_TEST_SUITE_P(All, GraphsInPartitions, testing::Values("captured", "built"),
                         [](const auto& made) { return std::string(made.param); });

// A thread's own default stream is known by another name in each thread.
TEST_F(OnTheSimulatedGpu, AGraphInAThreadsOwnStreamFollows) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  auto command = endless("captured");
  command.insert(command.end(), {"--stream", "per-thread"});
  const auto program = start(command, &rig);
  ASSERT_TRUE(rig.launches_beyond(20));
  ASSERT_TRUE(goes_to(rig, *program, 0b110));
  const auto home_launches = [&] {
    uint64_t count = 0;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { count = slot.home_launches[0].load(); });
    return count;
  };
  const auto stays = [&] {
    const uint64_t left = home_launches(), before = rig.launches_of_all();
    return eventually([&] { return rig.launches_of_all() > before + 20; }) &&
           home_launches() == left;
  };
  EXPECT_TRUE(eventually(stays));
}

// What cannot be made again runs where it was made, and that is counted.
TEST_F(OnTheSimulatedGpu, AGraphWithinAGraphCountsAsLeaving) {
  ShimRig rig(kShimPartitions, {{kPci, 0b11}});
  const auto program = start(endless("within"), &rig);
  ASSERT_TRUE(rig.launches_beyond(100));
  rig.with_slot(program->pid(), [&](ShimSlot& slot) {
    EXPECT_GT(slot.home_launches[0].load(), 40u) << "every second launch, with fills between them";
  });
}

TEST_F(OnTheSimulatedGpu, ExecutableGraphsAreRightAlone) {
  EXPECT_EQ(last_line(succeed({"execs"}, nullptr))["verified"], true);
}

TEST_F(OnTheSimulatedGpu, ExecutableGraphsAreRightUnderMoves) {
  std::mt19937 random(21);
  for (const uint32_t features :
       {kShimGate | kShimPartitions, kShimGate | kShimPartitions | kShimCredit})
    for (int seed = 1; seed <= 4; ++seed) {
      ShimRig rig(features, {{kPci, 0b11}});
      const auto program =
          start({"execs", "--seed", std::to_string(seed), "--steps", "500", "--pause-us",
                 seed % 2 == 0 ? "500" : "0", "--threads", seed > 2 ? "4" : "1"},
                &rig);
      expect_right_under_moves(rig, *program, random, seed > 2);
    }
}

// More partitions than a process can have, with a copy of each graph in each.
TEST_F(OnTheSimulatedGpu, PartitionsOfGraphsMakeRoom) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program = start(endless("captured"), &rig);
  ASSERT_TRUE(rig.launches_beyond(0));
  for (uint64_t groups = 1; groups < 20; ++groups)
    ASSERT_TRUE(goes_to(rig, *program, groups)) << groups;
}

}  // namespace
}  // namespace gpushare::test
