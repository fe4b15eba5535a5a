// SPDX-License-Identifier: Apache-2.0
// Ordinary CUDA programs on the simulated GPU, with the shim and without: they print the same, and
// their streams follow the agent.
#include <fstream>
#include <random>
#include <sstream>

#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

TEST_F(OnTheSimulatedGpu, ProgramsPrintTheSame) { expect_the_same_output(ShimRig(kShimGate)); }

TEST_F(OnTheSimulatedGpu, EveryLaunchIsCounted) {
  ShimRig rig(kShimGate);
  succeed({"launch", "--count", "1000", "--sync-count", "100"}, &rig);
  EXPECT_EQ(rig.launches_of_all(), 500u + 1000u + 100u) << "500 to warm up";
}

// The driver takes longer to take a context down than this test waits.
class SlowEnd : public OnTheSimulatedGpu {
 protected:
  SlowEnd() : OnTheSimulatedGpu({"--teardown-ms", "10000"}) {}
};

TEST_F(SlowEnd, WhoseLastContextGoesHasSaidBeforeThatItsWorkIsDone) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = start({"launch", "--count", "1000", "--sync-count", "100"}, &rig);
  uint64_t launches = 0, done_at = 0;
  ASSERT_TRUE(eventually([&] {
    rig.with_slot(program->pid(), [&](ShimSlot& slot) {
      done_at = slot.done_at.load();
      launches = launches_of(slot);
    });
    return done_at != 0;
  }));
  EXPECT_EQ(done_at, launches);
  EXPECT_EQ(launches, 500u + 1000u + 100u);
  EXPECT_FALSE(program->has_ended());
}

// A program that fills and copies on the GPU and launches nothing itself. Three of its calls fill
// new memory.
TEST_F(OnTheSimulatedGpu, CopiesAndFillsOnTheGpuAreLaunches) {
  ShimRig rig(kShimFeatures);
  for (const char* stream : {"non-blocking", "none"}) {
    const uint64_t before = rig.launches_of_all();
    succeed({"within", "--bytes", "4096", "--rounds", "10", "--stream", stream}, &rig);
    EXPECT_EQ(rig.launches_of_all() - before, 3u + 3 * 10) << stream;
  }
  const uint64_t before = rig.launches_of_all();
  succeed({"within", "--bytes", "4096", "--rounds", "10", "--host", "1"}, &rig);
  EXPECT_EQ(rig.launches_of_all() - before, 3u) << "copies between host and GPU are none";
}

// The number of SMs of that GPU.
constexpr int kAllSms = 132;

struct Place {
  uint64_t groups;
  int sms;
};

class Partitions : public OnTheSimulatedGpu, public testing::WithParamInterface<const char*> {};

TEST_P(Partitions, HoldEveryKindOfStream) {
  for (const Place place : {Place{0, kAllSms}, Place{0b1, 8}, Place{0b110, 16}, Place{0b101, 16},
                            Place{0x8000, 12}, Place{0x8001, 20}, Place{0xFFFF, kAllSms}}) {
    ShimRig rig(kShimPartitions, {{kPci, place.groups}});
    const Outcome outcome = succeed({"sms", "--launches", "2", "--stream", GetParam()}, &rig);
    const Json line = last_line(outcome);
    EXPECT_EQ(line["least"], place.sms);
    EXPECT_EQ(line["most"], place.sms);
    EXPECT_EQ(line["sm_count"], kAllSms) << "a program always sees the whole GPU";
  }
}

TEST_P(Partitions, MoveAtTheNextLaunch) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program =
      start({"sms", "--launches", "10000", "--units", "20", "--stream", GetParam()}, &rig);
  const auto follows = [&](uint64_t groups) {
    want(rig, groups);
    return eventually([&] { return applied(rig, *program) == groups || program->has_ended(); });
  };
  // It fills and launches in turn, and only the kernel says where it was.
  const auto kernel_has_run = [&] {
    const uint64_t before = rig.launches_of_all();
    return eventually([&] { return rig.launches_of_all() > before + 2 || program->has_ended(); });
  };
  EXPECT_TRUE(rig.launches_beyond(0));
  EXPECT_TRUE(kernel_has_run());
  EXPECT_TRUE(follows(0b110) && kernel_has_run());
  EXPECT_TRUE(follows(0) && kernel_has_run());
  EXPECT_TRUE(follows(0b1) && kernel_has_run());
  const Outcome outcome = success_of(*program);
  std::istringstream lines(outcome.out);
  std::vector<int> seen;
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    if (line.contains("sms") && (seen.empty() || seen.back() != line["sms"]))
      seen.push_back(line["sms"]);
  }
  EXPECT_EQ(seen, (std::vector<int>{8, 16, kAllSms, 8}));
}

const auto name_of_stream = [](const auto& kind) {
  std::string name = kind.param;
  std::erase(name, '-');
  return name;
};
INSTANTIATE_TEST_SUITE_P(All, Partitions,
                         testing::Values("legacy", "per-thread", "blocking", "non-blocking"),
                         name_of_stream);

class CopyPartitions : public Partitions {};

// 8 of the 132 SMs have their share of the memory's rate. There is so much data that the way to the
// whole GPU and back would take less.
TEST_P(CopyPartitions, HoldCopiesAndFills) {
  constexpr uint64_t kBytes = 64 << 20;
  constexpr double kCopyBytesPerNs = 2000, kFillBytesPerNs = 3500;
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const Outcome outcome = succeed(
      {"within", "--bytes", std::to_string(kBytes), "--rounds", "8", "--stream", GetParam()}, &rig);
  const double whole_ms = kBytes * (1 / kCopyBytesPerNs + 1 / kFillBytesPerNs) / 1e6;
  EXPECT_GE(last_line(outcome)["ms_per_round"].get<double>(), whole_ms * kAllSms / 8);
}

TEST_P(CopyPartitions, AreFollowedByCopiesAndFillsAlone) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program = start({"within", "--bytes", "4096", "--rounds", "1000000", "--pause-us",
                              "100", "--stream", GetParam()},
                             &rig);
  ASSERT_TRUE(rig.launches_beyond(0));
  for (const uint64_t groups : {0b110, 0, 0b1}) {
    EXPECT_TRUE(goes_to(rig, *program, groups)) << groups;
  }
  EXPECT_FALSE(program->has_ended());
}

TEST_P(CopyPartitions, ChangeNoResult) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  const auto program =
      start({"within", "--bytes", "65536", "--rounds", "2000", "--stream", GetParam()}, &rig);
  expect_right_under_moves(rig, *program, random, false);
}

INSTANTIATE_TEST_SUITE_P(All, CopyPartitions,
                         testing::Values("legacy", "per-thread", "blocking", "non-blocking",
                                         "none"),
                         name_of_stream);

// A program that only copies between host and GPU after it has filled its memory launches nothing
// for it, and follows where it waits.
TEST_F(OnTheSimulatedGpu, CopiesBetweenHostAndGpuMoveNothing) {
  ShimRig rig(kShimPartitions, {{kPci, 0b1}});
  const auto program = start(
      {"within", "--bytes", "4096", "--rounds", "3000", "--pause-us", "1000", "--host", "1"}, &rig);
  ASSERT_TRUE(eventually([&] { return rig.launches_of_all() == 3; }));
  want(rig, 0b110);
  uint64_t last = 0;
  while (!program->has_ended()) {
    if (const uint64_t now = applied(rig, *program); now != ~uint64_t{0}) last = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(last, 0b110u);
  EXPECT_EQ(status_of(*program), 0);
  EXPECT_EQ(rig.launches_of_all(), 3u);
}

TEST_F(OnTheSimulatedGpu, OrderHoldsUnderRandomMoves) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    const auto program =
        round % 2 == 0
            ? start({"hash", "--rounds", "100", "--words", "1024", "--streams", "6"}, &rig)
            : start({"order", "--seed", std::to_string(round), "--words", "1024"}, &rig);
    expect_right_under_moves(rig, *program, random, true);
  }
}

TEST_F(OnTheSimulatedGpu, ThreadsMayShareStreamsThatMove) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    const auto program =
        start({"crowd", "--launches", "1000", "--seed", std::to_string(round)}, &rig);
    expect_right_under_moves(rig, *program, random, true);
  }
}

// The agent wants more partitions one after the other than a process can have at a time.
TEST_F(OnTheSimulatedGpu, PartitionsThatAreNotUsedMakeRoom) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  const auto program = start({"sms", "--launches", "1000000", "--units", "20"}, &rig);
  ASSERT_TRUE(rig.launches_beyond(0));
  for (uint64_t groups = 1; groups <= 20; ++groups) {
    EXPECT_TRUE(goes_to(rig, *program, groups << 2)) << groups;
  }
  EXPECT_FALSE(program->has_ended());
}

// A program whose queue is never empty: launches are held until it is, once, however long it is.
class NeverEmpty : public OnTheSimulatedGpu,
                   public testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(NeverEmpty, AProgramFollows) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  std::vector<std::string> command{"spin", "--seconds", "600", "--ns-per-unit", "129"};
  command.insert(command.end(), GetParam().begin(), GetParam().end());
  const auto program = start(command, &rig);
  ASSERT_TRUE(rig.launches_beyond(20));
  for (const uint64_t groups : {0xFF, 0b11}) {
    EXPECT_TRUE(goes_to(rig, *program, groups)) << groups;
    EXPECT_TRUE(rig.launches_beyond(rig.launches_of_all() + 20));
  }
  // It says how long its queue takes there: all that is in line but what the launch is for. There
  // it has an eighth of the GPU, and its streams share that.
  const double queue_ns = std::stod(GetParam()[1]) * 1e3 * (std::stod(GetParam()[3]) - 1);
  const double streams = GetParam().size() > 5 ? std::stod(GetParam()[5]) : 1;
  EXPECT_TRUE(eventually([&] {
    double drain_ns = 0;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) {
      if (slot.drains[0].place.load() == 0b11)
        drain_ns = static_cast<double>(slot.drains[0].ns.load());
    });
    return drain_ns > queue_ns / 2 && drain_ns < 20 * streams * queue_ns;
  }));
  EXPECT_FALSE(program->has_ended());
}

INSTANTIATE_TEST_SUITE_P(
    All, NeverEmpty,
    testing::Values(std::vector<std::string>{"--kernel-us", "500", "--depth", "8"},
                    std::vector<std::string>{"--kernel-us", "500", "--depth", "64"},
                    std::vector<std::string>{"--kernel-us", "5000", "--depth", "8"},
                    std::vector<std::string>{"--kernel-us", "300", "--depth", "8", "--streams",
                                             "8"}));

// Announced partitions are made when the program waits and nothing of it runs. In the end something
// of it always runs.
class Announced : public OnTheSimulatedGpu, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr uint64_t kRounds = 3000;

  static ShimFollows follows(ShimRig& rig, const Child& program) {
    auto follows = ShimFollows::kUnknown;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { follows = slot.gpus[0].follows.load(); });
    return follows;
  }
  static uint64_t moves(ShimRig& rig, const Child& program) {
    uint64_t moves = 0;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { moves = slot.gpus[0].moves.load(); });
    return moves;
  }
  // Waits until the program has begun its last kernel.
  static bool never_rests(ShimRig& rig) { return rig.launches_beyond(2 * kRounds + 20); }
};

TEST_P(Announced, SetsAreThereWhenTheyAreWanted) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  const auto program =
      start({"beside", "--rounds", std::to_string(kRounds), "--wait", GetParam()}, &rig);
  ASSERT_TRUE(rig.launches_beyond(0));
  rig.with_all_slots([&](ShimSlot& slot) {
    slot.soon[0].sets[0].store(0b1110);
    slot.soon[0].sets[3].store(0b10);
  });
  ASSERT_TRUE(never_rests(rig));
  // What does not end stays where it is, and so it is not said that the process has gone.
  for (const uint64_t groups : {0b10, 0b1110, 0b10}) {
    const uint64_t before = moves(rig, *program);
    want(rig, groups);
    EXPECT_TRUE(eventually([&] { return moves(rig, *program) > before; })) << groups;
    EXPECT_TRUE(eventually([&] { return follows(rig, *program) == ShimFollows::kWorkRemains; }));
    EXPECT_NE(applied(rig, *program), groups);
  }
  // A partition that was not announced.
  want(rig, 0b100000);
  EXPECT_TRUE(eventually([&] { return follows(rig, *program) == ShimFollows::kPauses; }));
  const uint64_t before = moves(rig, *program);
  want(rig, 0b1110);
  EXPECT_TRUE(eventually([&] { return moves(rig, *program) > before; }))
      << "a partition that is made takes its place";
  EXPECT_FALSE(program->has_ended());
}

INSTANTIATE_TEST_SUITE_P(All, Announced, testing::Values("streams", "context", "events"),
                         name_of_stream);

// However many partitions are announced.
TEST_F(OnTheSimulatedGpu, AnnouncedSetsLeaveRoomForThoseThatAreWanted) {
  ShimRig rig(kShimPartitions, {{kPci, 0b110}});
  const auto program = start({"beside", "--rounds", "1000000", "--pause-us", "100"}, &rig);
  ASSERT_TRUE(rig.launches_beyond(0));
  uint64_t set = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t before = rig.launches_of_all();
    rig.with_all_slots([&](ShimSlot& slot) {
      for (auto& soon : slot.soon[0].sets) soon.store(++set << 3);
    });
    EXPECT_TRUE(rig.launches_beyond(before + 20));
  }
  for (const uint64_t groups : {0b1, 0b10, 0b11, 0b100}) {
    want(rig, groups);
    EXPECT_TRUE(eventually([&] {
      bool has_followed = false;
      rig.with_slot(program->pid(), [&](ShimSlot& slot) {
        EXPECT_NE(slot.gpus[0].follows.load(), ShimFollows::kNoRoom);
        has_followed = slot.gpus[0].applied.load() == groups;
      });
      return has_followed;
    })) << groups;
  }
  EXPECT_FALSE(program->has_ended());
}

// How many events the program and the shim record together.
class OwnStreams : public OnTheSimulatedGpu {
 protected:
  int records_of(const std::vector<std::string>& command, const ShimRig* rig) {
    const std::string path = folder() + "/records";
    more_environment_ = {"GPUSHARE_SIM_EVENT_RECORDS=" + path};
    succeed(command, rig);
    int records = -1;
    std::ifstream(path) >> records;
    return records;
  }
};

TEST_F(OwnStreams, OfOneThreadAreNotMarkedAtHome) {
  const std::vector<std::string> command{"within", "--bytes",  "4096",      "--rounds",
                                         "100",    "--stream", "per-thread"};
  const int alone = records_of(command, nullptr);
  EXPECT_GE(alone, 0);
  ShimRig rig(kShimPartitions, {{kPci, 0}});
  // One every 64 launches is a milestone, and now and then one more; marks would be 300.
  EXPECT_LE(records_of(command, &rig), alone + 4 * ((3 + 3 * 100) / 64 + 1));
}

TEST_F(OwnStreams, OfSeveralThreadsAreMarkedAtHome) {
  const std::vector<std::string> command{"conformance", "--only", "own default streams of two",
                                         "--repeat", "10"};
  EXPECT_EQ(records_of(command, nullptr), 0);
  ShimRig rig(kShimPartitions, {{kPci, 0}});
  EXPECT_GT(records_of(command, &rig), 10);
}

}  // namespace
}  // namespace gpushare::test
