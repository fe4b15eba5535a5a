// SPDX-License-Identifier: Apache-2.0
// Programs that try to stop the agent, or to keep it busy: it goes on step by step, and it goes on
// serving others. That it has made a step is read from its record in the control plane.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kSpatial = "[gpu.0]\nsharing = 'spatial'\n";
constexpr const char* kSeconds = "4";
// The agent is looked at so often. Its steps are at most 0.1 s apart, and a machine that is busy
// with other work may hold one up for ten times as long. Looks are counted and not time, because a
// machine that stands still keeps this program from looking as well.
constexpr Nanos kBetweenLooks = 2ms;
constexpr int kMostLooks = 1s / kBetweenLooks;

class LoopAttackTest : public ::testing::Test {
 protected:
  LoopAttackTest() {
    rig_.start_agent();
    program_ = rig_.start("spin", kSaturating);  // while there is work, the agent steps
    needed(program_->await(
        "be on the GPU", [&] { return rig_.record(program_->pid()).pid != 0; }, 5min));
    // As if root had opened the agent to everybody.
    EXPECT_EQ(::chmod(rig_.socket.c_str(), 0666), 0);
    EXPECT_EQ(::chmod(rig_.folder.c_str(), 0755), 0);
  }

  // Runs the attack to its end, as another user if that can be. Returns how often it did what it
  // does.
  long run(const std::string& attack) {
    const auto child = rig_.start_attack(attack, {kSeconds, ::geteuid() == 0 ? "12345" : "0"});
    uint64_t ticks = 0;
    int looks = 0;
    while (!child->has_ended()) {
      const uint64_t now = rig_.snapshot().agent.ticks;
      looks = now != std::exchange(ticks, now) ? 0 : looks + 1;
      most_looks_ = std::max(most_looks_, looks);
      while_attacked();
      std::this_thread::sleep_for(kBetweenLooks);
    }
    EXPECT_EQ(status_of(*child), 0);
    const std::string said = rig_.output(attack + ".log");
    const std::size_t at = said.find(':');
    return at == std::string::npos ? 0 : std::stol(said.substr(at + 1));
  }
  virtual void while_attacked() {}

  // Kilobytes of the agent's memory that were in use at most.
  long peak_memory() const {
    std::ifstream file("/proc/" + std::to_string(rig_.agent_pid()) + "/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    return 0;
  }

  SystemRig rig_{kSpatial};
  std::unique_ptr<Child> program_;
  int most_looks_ = 0;  // in a row that saw no step
};

TEST_F(LoopAttackTest, AFloodOfConnectionsToTheShimsSocket) {
  EXPECT_GT(run("connect_flood"), 1000);
  EXPECT_LT(most_looks_, kMostLooks);
  EXPECT_LT(std::filesystem::file_size(rig_.folder + "/agent.log"), 200'000u);
  EXPECT_TRUE(rig_.answers(R"({"op":"hello"})", "\"ok\":true"));
}

TEST_F(LoopAttackTest, ClientsThatAskForeverAndNeverRead) {
  EXPECT_GT(run("control_hoard"), 100);
  EXPECT_LT(most_looks_, kMostLooks);
  EXPECT_LT(peak_memory(), 128 * 1024) << "what the unit gives it";
  EXPECT_TRUE(rig_.answers(R"({"op":"hello"})", "\"ok\":true"));
}

TEST_F(LoopAttackTest, RequestsOf64KiB) {
  EXPECT_GT(run("control_large"), 100);
  EXPECT_LT(most_looks_, kMostLooks);
  EXPECT_LT(peak_memory(), 128 * 1024);
}

// Root is served while another user holds all the places that it may hold.
class SlowClientsTest : public LoopAttackTest {
 protected:
  void while_attacked() override {
    if (MonotonicClock().now() < next_) return;
    next_ = MonotonicClock().now() + 100ms;
    ++asked_;
    answered_ += rig_.answers(R"({"op":"hello"})", "\"ok\":true");
  }
  Time next_{};
  int asked_ = 0, answered_ = 0;
};

TEST_F(SlowClientsTest, SlowAndSilentClients) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  EXPECT_GT(run("control_slow"), 0);
  EXPECT_LT(most_looks_, kMostLooks);
  EXPECT_GT(asked_, 3);
  EXPECT_EQ(answered_, asked_);
}

}  // namespace
}  // namespace gpushare::test
