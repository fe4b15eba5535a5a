// SPDX-License-Identifier: Apache-2.0
// Iterations of ordinary CUDA programs, on the simulated GPU: recognised, announced, held back.
#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

class Steps : public OnTheSimulatedGpu {
 protected:
  static PublishedIterations known(ShimRig& rig, const Child& program) {
    PublishedIterations seen;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) {
      seen = ShimHost::iterations(slot).value_or(PublishedIterations{});
    });
    return seen;
  }
  static uint32_t waiting(ShimRig& rig, const Child& program) {
    uint32_t count = 0;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { count = slot.iterations.waiting.load(); });
    return count;
  }
  static void set_run_until(ShimRig& rig, const Child& program, uint64_t begun) {
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { ShimHost::set_run_until(slot, begun); });
  }
};

class Modes : public Steps, public testing::WithParamInterface<const char*> {};

TEST_P(Modes, AreRecognisedAtTheVeryLaunchThatBeginsThem) {
  for (const uint32_t features : {uint32_t{kShimIterations}, kShimFeatures}) {
    ShimRig rig(features, {{kPci, 0b11}});
    const Outcome outcome =
        succeed({"steps", "--mode", GetParam(), "--iterations", "200", "--pause-us", "100"}, &rig);
    const Json line = last_line(outcome);
    EXPECT_EQ(line["source"], 1) << line;
    EXPECT_GE(line["accuracy"], 0.99) << line;
  }
}

TEST_P(Modes, MayBeAnnounced) {
  ShimRig rig(kShimIterations);
  const Outcome outcome = succeed({"steps", "--mode", GetParam(), "--iterations", "100",
                                   "--pause-us", "100", "--announce", "1"},
                                  &rig);
  const Json line = last_line(outcome);
  EXPECT_EQ(line["source"], 2) << line;
  EXPECT_EQ(line["seen"], 100) << line;
  EXPECT_EQ(line["wrong_phases"], 0) << line;
}

INSTANTIATE_TEST_SUITE_P(All, Modes, testing::Values("train", "decode", "serve"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST_F(Steps, NothingIsKnownWithoutTheFeature) {
  ShimRig rig(kShimGate | kShimPartitions, {{kPci, 0}});
  const Outcome outcome = succeed({"steps", "--iterations", "20"}, &rig);
  EXPECT_EQ(last_line(outcome)["attached"], false);
}

class Held : public Steps, public testing::WithParamInterface<const char*> {};

TEST_P(Held, StandAtTheBoundaryUntilTheirTurn) {
  ShimRig rig(kShimIterations);
  const auto program = start({"steps", "--iterations", "1000000", "--announce", GetParam()}, &rig);
  ASSERT_TRUE(eventually([&] { return known(rig, *program).begun > 20; }));
  set_run_until(rig, *program, 1);
  ASSERT_TRUE(eventually([&] { return waiting(rig, *program) == 1; }));
  uint64_t begun = known(rig, *program).begun;
  for (const uint64_t turn : {1, 2, 10}) {
    const uint64_t launches = rig.launches_of_all();
    set_run_until(rig, *program, begun + turn);
    ASSERT_TRUE(eventually(
        [&] { return known(rig, *program).begun == begun + turn && waiting(rig, *program) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(known(rig, *program).begun, begun + turn);
    EXPECT_EQ(rig.launches_of_all() - launches, turn * 40) << "of exactly so many iterations";
    begun += turn;
  }
  const Time died = MonotonicClock().now();
  rig.die();
  ASSERT_TRUE(eventually([&] { return known(rig, *program).begun > begun; }));
  EXPECT_LE(MonotonicClock().now() - died, kFreedAfterDeath);
  EXPECT_TRUE(eventually([&] { return known(rig, *program).begun > begun + 3; }))
      << "nobody stands still because the agent died";
}

INSTANTIATE_TEST_SUITE_P(All, Held, testing::Values("0", "1"), [](const auto& announced) {
  return std::string(announced.param[0] == '1' ? "Announced" : "Recognised");
});

TEST_F(Steps, AnAgentThatStopsInOrderLetsAllGo) {
  auto rig = std::make_unique<ShimRig>(kShimIterations);
  const auto program = start({"steps", "--iterations", "4000"}, rig.get());
  ASSERT_TRUE(eventually([&] { return known(*rig, *program).begun > 5; }));
  set_run_until(*rig, *program, 1);
  ASSERT_TRUE(eventually([&] { return waiting(*rig, *program) == 1; }));
  rig.reset();
  EXPECT_EQ(status_of(*program), 0);
}

TEST_F(Steps, TakeTurns) {
  std::vector<std::string> command{build_folder() + "/bin/tests/shim_drive", "--features",
                                   "iterations", "--alternate", "10"};
  for (const char* mode : {"train", "decode"})
    for (const std::string& word :
         {std::string("--"), build_folder() + "/bin/workloads/steps", std::string("--iterations"),
          std::string("300"), std::string("--mode"), std::string(mode)})
      command.push_back(word);
  const Outcome outcome = success_of(*started(
      command, {"GPUSHARE_SIM=" + socket(), "LD_LIBRARY_PATH=" + build_folder() + "/lib/sim"}));
  std::istringstream lines(outcome.err);
  Json turns;
  for (std::string text; std::getline(lines, text);)
    if (text.find("\"turns\"") != std::string::npos) turns = Json::parse(text);
  EXPECT_GE(turns["turns"], 20) << outcome.err;
  EXPECT_EQ(turns["wrong_length"], 0) << outcome.err;
  EXPECT_GE(turns["gaps"], 5) << outcome.err;
}

}  // namespace
}  // namespace gpushare::test
