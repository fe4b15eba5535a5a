// SPDX-License-Identifier: Apache-2.0
// The control plane of an agent that was killed is of another layout, as after an upgrade, or
// damaged: with real processes on the simulated GPU in real time. What was done to programs is
// undone all the same, also when the driver does not answer at first.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

// One program, which a user has frozen.
class OtherLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    rig_.start_agent();
    std::vector<std::string> arguments = kSaturating;
    arguments.insert(arguments.end(), {"--report-ms", "10"});
    program_ = rig_.start("spin", arguments);
    ASSERT_TRUE(eventually([&] { return kernels() > 10; }));
    ASSERT_TRUE(rig_.answers("{\"op\":\"freeze\",\"pid\":" + std::to_string(program_->pid()) + "}",
                             "\"ok\":true"));
    ASSERT_TRUE(eventually([&] { return rig_.frozen_groups() == 1; }));
    rig_.kill_both();
  }
  // Kernels that have ended, by the program's last report.
  uint64_t kernels() const {
    const std::string text = rig_.output("spin.log");
    const std::size_t at = text.rfind("\"kernels\":");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 10, nullptr, 10);
  }
  bool goes_on() const {
    const uint64_t before = kernels();
    return eventually([&] { return kernels() > before + 10; });
  }
  std::string path() const { return "/dev/shm" + rig_.region; }
  bool is_set_aside() const { return std::filesystem::exists(path() + ".unread"); }
  void TearDown() override { std::filesystem::remove(path() + ".unread"); }

  SystemRig rig_{""};
  std::unique_ptr<Child> program_;
};

TEST_F(OtherLayout, WhatItsLedgerListsIsUndoneWhenTheDriverAnswersAgain) {
  rig_.set_layout_version(99);
  rig_.set_hang(0);
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_EQ(rig_.frozen_groups(), 1u) << "it is listed still";
  rig_.set_hang(0, false);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_TRUE(goes_on());
  EXPECT_EQ(rig_.frozen_groups(), 0u);
}

TEST_F(OtherLayout, ANewAgentUndoesItWhenTheDriverAnswersAgain) {
  rig_.set_layout_version(99);
  rig_.set_hang(0);
  rig_.start_again();
  EXPECT_EQ(rig_.frozen_groups(), 1u) << "it is listed still";
  rig_.set_hang(0, false);
  EXPECT_TRUE(goes_on()) << rig_.output("agent.log");
}

TEST_F(OtherLayout, ADamagedOneStaysUntilAllIsThawed) {
  std::filesystem::resize_file(path(), 4096);
  rig_.set_hang(0);
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_FALSE(is_set_aside()) << "it is tried again";
  EXPECT_NE(rig_.run_gpushared({}), 0) << "an agent would not know what is frozen";
  rig_.set_hang(0, false);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_TRUE(is_set_aside());
  EXPECT_TRUE(goes_on());
}

TEST_F(OtherLayout, ADamagedOneKeepsNoAgentFromStartingWhereThereIsNoDriver) {
  std::filesystem::resize_file(path(), 4096);
  rig_.simulation.reset();
  rig_.start_again();
  EXPECT_TRUE(is_set_aside()) << rig_.output("agent.log");
}

}  // namespace
}  // namespace gpushare::test
