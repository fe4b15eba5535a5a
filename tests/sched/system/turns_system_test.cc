// SPDX-License-Identifier: Apache-2.0
// Real programs take turns by the agent, on the simulated GPU in real time.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

// Two turns do not last as long as records are apart (100 ms): else always the same program would
// be seen with the turn.
std::string config_of(int grace_ms) {
  return "[gpu.0]\npolicy = \"turns\"\nturn_ms = 70\ngrace_ms = " + std::to_string(grace_ms) + "\n";
}
// Each iteration is waited for.
std::vector<std::string> steps(uint64_t iterations) {
  return {"--mode", "decode", "--tokens", "1000000", "--iterations", std::to_string(iterations)};
}
constexpr uint64_t kForEver = 10'000'000;

class TurnsSystem : public ::testing::Test {
 protected:
  // By default a boundary is waited for so long that a busy machine reaches it.
  explicit TurnsSystem(int grace_ms = 10'000) : rig_(config_of(grace_ms)) { rig_.start_agent(); }

  uint64_t iterations(const Child& program) const {
    return rig_.record(program.pid()).job_iterations;
  }
  // False: it makes no more iterations.
  bool goes_on(const Child& program) const {
    const uint64_t before = iterations(program);
    return eventually([&] { return iterations(program) > before + 3; });
  }
  GpuRecord gpu() const {
    const PlaneSnapshot all = rig_.snapshot();
    return all.gpus.empty() ? GpuRecord{} : all.gpus.front();
  }
  // Whether their gap could be seen or not, which depends on how busy the machine is.
  uint64_t handovers() const {
    const GpuRecord record = gpu();
    return record.gaps + record.gaps_missed;
  }
  bool has_turn(const Child& program) const {
    return rig_.record(program.pid()).turn == TurnState::kRunning;
  }
  bool receives_time(const Child& program) const {
    const uint64_t before = rig_.record(program.pid()).gpu_time_ns;
    return eventually([&] { return rig_.record(program.pid()).gpu_time_ns > before; });
  }
  std::string seen() const {
    std::string text = rig_.output("agent.log");
    for (const auto& [slot, record] : rig_.snapshot().processes)
      text += "process " + std::to_string(record.pid) + ": turn " +
              std::to_string(static_cast<int>(record.turn)) + ", iterations " +
              std::to_string(record.job_iterations) + ", freezes " +
              std::to_string(record.freezes) + ", " + record.note + "\n";
    return text;
  }

  SystemRig rig_;
};

class ShortGrace : public TurnsSystem {
 protected:
  ShortGrace() : TurnsSystem(50) {}
};

TEST_F(TurnsSystem, TwoProgramsTakeTurnsAtTheirBoundaries) {
  const auto one = rig_.start_with_shim("steps", steps(kForEver));
  const auto two = rig_.start_with_shim("steps", steps(kForEver));
  ASSERT_TRUE(eventually([&] { return handovers() >= 20 && gpu().gaps > 0; })) << seen();
  EXPECT_STREQ(gpu().policy, "turns");
  EXPECT_NE(gpu().gap_p50_us, kUnknown32);
  for (const Child* program : {one.get(), two.get()}) {
    EXPECT_TRUE(eventually([&] { return has_turn(*program); })) << seen();
    EXPECT_TRUE(goes_on(*program)) << seen();
  }
  EXPECT_TRUE(eventually([&] {
    const auto note = std::string(rig_.record(one->pid()).note) + rig_.record(two->pid()).note;
    return note.find("turn of pid-") != std::string::npos;
  })) << seen();
}

TEST_F(TurnsSystem, OneThatDiesWithTheTurnKeepsNobodyWaiting) {
  auto one = rig_.start_with_shim("steps", steps(kForEver));
  auto two = rig_.start_with_shim("steps", steps(kForEver));
  ASSERT_TRUE(eventually([&] { return handovers() >= 3; })) << seen();
  ASSERT_TRUE(eventually([&] { return has_turn(*one); })) << seen();
  one->signal(SIGKILL);
  EXPECT_TRUE(goes_on(*two)) << seen();
}

// It stands at no boundary and at no gate, and launches nothing.
TEST_F(ShortGrace, OneThatIsStoppedBySigstopWithTheTurnKeepsNobodyWaiting) {
  const auto one = rig_.start_with_shim("steps", steps(kForEver));
  const auto two = rig_.start_with_shim("steps", steps(kForEver));
  ASSERT_TRUE(eventually([&] { return handovers() >= 3; })) << seen();
  ASSERT_TRUE(eventually([&] { return has_turn(*one); })) << seen();
  one->signal(SIGSTOP);
  EXPECT_TRUE(goes_on(*two)) << seen();
  one->signal(SIGCONT);
  EXPECT_TRUE(goes_on(*one)) << seen();
}

TEST_F(TurnsSystem, WhenAgentAndSupervisorDieNobodyIsHeld) {
  const auto one = rig_.start_with_shim("steps", steps(6'000));
  const auto two = rig_.start_with_shim("steps", steps(6'000));
  ASSERT_TRUE(eventually([&] { return handovers() >= 3; })) << seen();
  const pid_t agent = rig_.agent_pid();
  rig_.gpushared->signal(SIGKILL);
  ::kill(agent, SIGKILL);
  for (Child* program : {one.get(), two.get()}) EXPECT_EQ(status_of(*program), 0) << seen();
}

TEST_F(ShortGrace, AProgramWithoutTheShimTakesPart) {
  const auto one = rig_.start("spin", kSaturating);
  const auto two = rig_.start_with_shim("steps", steps(kForEver));
  ASSERT_TRUE(eventually([&] { return rig_.record(one->pid()).freezes >= 3; })) << seen();
  EXPECT_TRUE(goes_on(*two)) << seen();
  EXPECT_TRUE(receives_time(*one)) << seen();
  EXPECT_TRUE(eventually([&] { return has_turn(*two); })) << seen();
}

TEST_F(ShortGrace, OneThatComesToNoBoundaryIsStoppedWhereItIs) {
  const auto one = rig_.start_with_shim("endless", {"--seconds", "600"});
  const auto two = rig_.start_with_shim("steps", steps(kForEver));
  EXPECT_TRUE(eventually([&] { return rig_.record(one->pid()).freezes >= 2; })) << seen();
  EXPECT_TRUE(goes_on(*two)) << seen();
  EXPECT_TRUE(receives_time(*one)) << seen();
}

// The driver does nothing else for four seconds, and the process that ends is in it.
TEST(FifoSystem, TheNextJobRunsWhileTheDriverTakesTheContextOfTheLastOneDown) {
  SystemRig rig("[gpu.0]\npolicy = \"fifo\"\n");
  rig.start_anew({"--teardown-ms", "4000"});
  const auto one = rig.start_with_shim("steps", steps(2000));
  ASSERT_TRUE(eventually([&] { return rig.record(one->pid()).turn == TurnState::kRunning; }));
  const auto two = rig.start_with_shim("steps", steps(kForEver));
  ASSERT_TRUE(eventually([&] { return rig.record(two->pid()).turn == TurnState::kRunning; }));
  EXPECT_FALSE(one->has_ended());
  EXPECT_TRUE(eventually([&] { return one->has_ended(); }));
  EXPECT_EQ(status_of(*one), 0);
}

}  // namespace
}  // namespace gpushare::test
