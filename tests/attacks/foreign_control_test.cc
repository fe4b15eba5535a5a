// SPDX-License-Identifier: Apache-2.0
// A process that freezes others, or changes their slices, without the kernel module.
#include <gtest/gtest.h>

#include <string>

#include "tests/sched/system/system_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::ended_by;
using test::SystemRig;

class ForeignControl : public ::testing::Test {
 protected:
  void SetUp() override {
    rig_.start_agent();
    start_victim();
    ASSERT_TRUE(eventually([&] { return rig_.record(victim_->pid()).pid != 0; }));
  }
  void start_victim() {
    victim_ = rig_.start("endless", {"--seconds", "1000", "--report-ms", "5"});
  }
  std::unique_ptr<Child> attack(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--victim", std::to_string(victim_->pid())});
    auto started = rig_.start_attack("foreign_control", std::move(arguments));
    EXPECT_TRUE(eventually([&] { return rig_.output("foreign_control.log").contains("did_ns"); }));
    return started;
  }
  // What the victim has done.
  uint64_t turns() const {
    const std::string line = victim_->last_line();
    const auto at = line.find("\"turns\":");
    return at == std::string::npos ? 0 : std::stoull(line.substr(at + 8));
  }
  bool goes_on() const {
    const uint64_t before = turns();
    return eventually([&] { return turns() > before; });
  }

  SystemRig rig_{""};
  std::unique_ptr<Child> victim_;
};

TEST_F(ForeignControl, AFrozenProcessIsThawedAndItsFreezerNamed) {
  ASSERT_TRUE(goes_on());
  // It waits so long before it undoes what it did that only the agent can have thawed.
  const auto attacker = attack({"--hold-ms", "1000000", "--rounds", "3", "--pause-ms", "1"});
  EXPECT_TRUE(eventually([&] { return rig_.snapshot().agent.interferences >= 3; }));
  EXPECT_TRUE(goes_on());
  const std::string named = "process " + std::to_string(attacker->pid()) + " (foreign_contro";
  EXPECT_TRUE(rig_.answers(R"({"op":"doctor"})", named)) << rig_.ask(R"({"op":"doctor"})");
  EXPECT_TRUE(rig_.output("agent.log").contains(named));
  EXPECT_TRUE(std::string(rig_.record(victim_->pid()).note).contains("frozen by"));
}

// No agent saw who froze it.
class FreezeBeforeTheAgent : public ForeignControl {
  void SetUp() override { start_victim(); }
};

TEST_F(FreezeBeforeTheAgent, IsUndoneByTheAgentThatComes) {
  ASSERT_TRUE(goes_on());
  const auto attacker = attack({"--hold-ms", "1000000", "--rounds", "3", "--pause-ms", "1"});
  const auto count = [&](const std::string& line) {
    const std::string all = victim_->output();
    int times = 0;
    for (auto at = all.find(line); at != std::string::npos; at = all.find(line, at + 1)) ++times;
    return times;
  };
  const auto turns_of = [&] { return "\"turns\":" + std::to_string(turns()) + "}"; };
  ASSERT_TRUE(eventually([&] { return count(turns_of()) >= 3; })) << "it stands still";
  rig_.start_agent();
  EXPECT_TRUE(goes_on());
  EXPECT_FALSE(attacker->has_ended());
}

TEST_F(ForeignControl, AChangedSliceIsPutBack) {
  // The slice of a victim beside another is the agent's.
  const auto other = rig_.start("spin", test::kSaturating);
  ASSERT_TRUE(eventually([&] { return rig_.record(other->pid()).slice_us != kUnknown32; }));
  const auto attacker = attack({"--hold-ms", "3000", "--slice-us", "777777"});
  EXPECT_TRUE(eventually([&] { return attacker->has_ended(); }));
  const std::string said = rig_.output("foreign_control.log");
  EXPECT_TRUE(said.contains("\"slice_us\":")) << said;
  EXPECT_FALSE(said.contains("\"slice_us\":777777")) << "it found its own slice: " << said;
  EXPECT_TRUE(rig_.answers(R"({"op":"doctor"})", "changed the slice of process"));
}

// A program that lengthens its own slice all the time, beside an equal one.
TEST(OwnSlice, ThatIsLengthenedAgainAndAgainGainsLittle) {
  SystemRig rig("");
  rig.start_agent();
  const auto other = rig.start("spin", test::kSaturating);
  const auto attack =
      rig.start_attack("own_slice", {"--seconds", "1000", "--ns-per-unit", "129.293"});
  const auto used = [&](const Child& child) {
    return static_cast<double>(rig.record(child.pid()).gpu_time_ns);
  };
  ASSERT_TRUE(eventually([&] { return used(*other) > 1e9 && used(*attack) > 1e9; }))
      << rig.output("own_slice.log");
  double part = 1;
  // While the agent is late, on a busy machine, its slice stays as long as it has made it.
  EXPECT_TRUE(eventually([&] {
    const double of_other = used(*other), of_attack = used(*attack);
    if (!eventually([&] { return used(*other) + used(*attack) >= of_other + of_attack + 4e9; }))
      return false;
    part = (used(*attack) - of_attack) / (used(*attack) - of_attack + used(*other) - of_other);
    return part <= 0.65;
  })) << part
      << " where 0.5 is due; it has 0.8 without an agent";
  EXPECT_FALSE(attack->has_ended());
  EXPECT_FALSE(attack->last_line().ends_with("\"times_set\":0}")) << "the driver lets it";
}

}  // namespace
}  // namespace gpushare
