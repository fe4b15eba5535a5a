// SPDX-License-Identifier: Apache-2.0
// tests/attacks/escapes/outlived beside a real agent: work that goes on after its program has ended
// is its tenant's, for its cap, freezes and charges, and is forgotten when its child ends.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/sched/system/system_rig.h"
#include "tests/support/lateness.h"
#include "tests/workloads/common/output.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::status_of;
using test::SystemRig;

constexpr const char* kUnitOfSim = "129.293";  // of the simulated GPU

class OutlivedSystem : public ::testing::Test {
 protected:
  // Starts the attack, whose work would take five minutes alone, and returns when it has ended.
  void begin() {
    rig_.start_agent();
    attack_ =
        rig_.start_attack("outlived", {"--counted", "0", "--kernels", "300", "--kernel-us",
                                       "1000000", "--seconds", "600", "--ns-per-unit", kUnitOfSim});
    ASSERT_EQ(status_of(*attack_), 0) << rig_.output("outlived.log");
    ASSERT_TRUE(eventually([&] { return note().starts_with("has ended; its work goes on until"); }))
        << note();
    child_ = std::stoi(note().substr(note().find("until") + 6));
  }
  ~OutlivedSystem() override {
    if (child_ > 0) ::kill(child_, SIGKILL);
  }
  std::string note() const { return rig_.record(attack_->pid()).note; }
  // What a program that always has work gets beside it.
  double share_of_other() {
    const auto other = rig_.start("spin", {"--seconds", "3", "--ns-per-unit", kUnitOfSim});
    EXPECT_EQ(status_of(*other), 0);
    return number_in(rig_.output("spin.log"), "gpu_share").value();
  }
  void expect_it_is_capped() {
    const double before = charged_ms();
    EXPECT_GE(share_of_other(), 0.75) << "half of the GPU if the work had no cap";
    EXPECT_GT(charged_ms(), before);
    EXPECT_EQ(rig_.tenant("default").process_count, 0u);
  }
  double charged_ms() const {
    return static_cast<double>(rig_.tenant("capped").gpu[0].gpu_time_ns) / 1e6;
  }

  SystemRig rig_{
      "[tenant.capped]\nmax = \"10%\"\nmatch = [{command=\"outlived\"}]\n"
      "[tenant.other]\nmatch = [{command=\"spin\"}]\n"};
  std::unique_ptr<Child> attack_;
  pid_t child_ = 0;
};

TEST_F(OutlivedSystem, IsCappedChargedAndForgottenWithTheChild) {
  begin();
  expect_it_is_capped();
  ASSERT_EQ(::kill(child_, SIGKILL), 0);
  child_ = 0;
  EXPECT_TRUE(eventually([&] { return rig_.record(attack_->pid()).pid == 0; }));
  EXPECT_TRUE(eventually([&] { return rig_.frozen_groups() == 0; }));
}

TEST_F(OutlivedSystem, IsFrozenWithItsTenant) {
  begin();
  ASSERT_TRUE(rig_.answers(R"({"op":"freeze","tenant":"capped"})", "true"));
  ASSERT_TRUE(
      eventually([&] { return rig_.record(attack_->pid()).state == ProcessState::kFrozenUser; }));
  // What it did before is charged when samples tell, at most two seconds later.
  EXPECT_GE(share_of_other(), 0.9);
  const double before = charged_ms();
  EXPECT_GE(share_of_other(), 0.9);
  EXPECT_LE(charged_ms(), before + 1);
}

TEST_F(OutlivedSystem, IsItsTenantsForTheNextAgent) {
  begin();
  const pid_t agent = rig_.agent_pid();
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] {
    const ProcessRecord record = rig_.record(attack_->pid());
    return rig_.agent_pid() != agent && record.pid != 0;
  }));
  expect_it_is_capped();
}

// As an upgrade of the package does.
TEST_F(OutlivedSystem, IsItsTenantsForAnAgentThatIsStartedAgain) {
  begin();
  rig_.gpushared->signal(SIGTERM);
  ASSERT_EQ(status_of(*rig_.gpushared), 0);
  rig_.start_agent();
  ASSERT_TRUE(eventually([&] { return rig_.record(attack_->pid()).pid != 0; }));
  expect_it_is_capped();
}

}  // namespace
}  // namespace gpushare
