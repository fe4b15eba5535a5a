// SPDX-License-Identifier: Apache-2.0
// Ordinary CUDA programs on the simulated GPU, with the shim and without: they print the same.
#include <random>
#include <sstream>

#include "tests/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

TEST_F(OnTheSimulatedGpu, ProgramsPrintTheSame) {
  ShimRig rig(kShimGate);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"hash", "--rounds", "20"},
        std::vector<std::string>{"copy", "--bytes", "1048576", "--rounds", "2"}}) {
    const Outcome alone = run(command, nullptr), with = run(command, &rig);
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(checksum(with), checksum(alone)) << command[0];
  }
}

TEST_F(OnTheSimulatedGpu, EveryLaunchIsCounted) {
  ShimRig rig(kShimGate);
  const Outcome outcome = run({"launch", "--count", "1000", "--sync-count", "100"}, &rig);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(rig.launches_of_all(), 500u + 1000u + 100u) << "500 to warm up";
}

// Its number of SMs.
constexpr int kAllSms = 132;

struct Place {
  uint64_t groups;
  int sms;
};

class Partitions : public OnTheSimulatedGpu, public testing::WithParamInterface<const char*> {};

TEST_P(Partitions, HoldEveryKindOfStream) {
  for (const Place place : {Place{0, kAllSms}, Place{0b1, 8}, Place{0b110, 16}, Place{0b101, 16}}) {
    ShimRig rig(kShimPartitions, {{kPci, place.groups}});
    const Outcome outcome = run({"sms", "--launches", "2", "--stream", GetParam()}, &rig);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json line = last_line(outcome);
    EXPECT_EQ(line["least"], place.sms);
    EXPECT_EQ(line["most"], place.sms);
    EXPECT_EQ(line["sm_count"], kAllSms) << "a program always sees the whole GPU";
  }
}

TEST_P(Partitions, MoveAtTheNextLaunch) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program =
      start({"sms", "--launches", "400", "--units", "20", "--stream", GetParam()}, &rig);
  uint64_t applied = 0;
  const auto goes_to = [&](uint64_t groups) {
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
    return ShimRig::eventually([&] {
      rig.with_slot(program->pid(), [&](ShimSlot& slot) { applied = slot.gpus[0].applied.load(); });
      return applied == groups || program->has_ended();
    });
  };
  EXPECT_TRUE(ShimRig::eventually([&] { return rig.launches_of_all() > 0; }));
  EXPECT_TRUE(goes_to(0b110));
  EXPECT_TRUE(goes_to(0));
  EXPECT_TRUE(goes_to(0b1));
  const Outcome outcome = program->wait();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<int> seen;
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    if (line.contains("sms") && (seen.empty() || seen.back() != line["sms"]))
      seen.push_back(line["sms"]);
  }
  EXPECT_EQ(seen, (std::vector<int>{8, 16, kAllSms, 8}));
}

INSTANTIATE_TEST_SUITE_P(All, Partitions,
                         testing::Values("legacy", "per-thread", "blocking", "non-blocking"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(OnTheSimulatedGpu, OrderHoldsUnderRandomMoves) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    const auto program =
        round % 2 == 0
            ? start({"hash", "--rounds", "100", "--words", "1024", "--streams", "6"}, &rig)
            : start({"order", "--seed", std::to_string(round), "--words", "1024"}, &rig);
    while (!program->has_ended()) {
      const uint64_t groups = random() % 14;  // few enough to be made
      rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    const Outcome outcome = program->wait();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(last_line(outcome)["verified"], true);
  }
}

TEST_F(OnTheSimulatedGpu, ThreadsMayShareStreamsThatMove) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    const auto program =
        start({"crowd", "--launches", "1000", "--seed", std::to_string(round)}, &rig);
    while (!program->has_ended()) {
      const uint64_t groups = random() % 14;
      rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    const Outcome outcome = program->wait();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(last_line(outcome)["verified"], true);
  }
}

// More sets than a process can have partitions at a time.
TEST_F(OnTheSimulatedGpu, PartitionsThatAreNotUsedMakeRoom) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  const auto program = start({"sms", "--launches", "1000000", "--units", "20"}, &rig);
  ASSERT_TRUE(ShimRig::eventually([&] { return rig.launches_of_all() > 0; }));
  for (uint64_t groups = 1; groups <= 20; ++groups) {
    rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups << 2); });
    EXPECT_TRUE(ShimRig::eventually([&] {
      uint64_t applied = 0;
      rig.with_slot(program->pid(), [&](ShimSlot& slot) { applied = slot.gpus[0].applied.load(); });
      return applied == groups << 2;
    })) << groups;
  }
  EXPECT_FALSE(program->has_ended());
}

}  // namespace
}  // namespace gpushare::test
