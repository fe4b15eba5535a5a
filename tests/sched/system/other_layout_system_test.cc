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

// What hangs is its GPU, or the driver for whoever opens it.
class OtherLayoutAndHang : public OtherLayout, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(OtherLayoutAndHang, WhatItsLedgerListsIsUndoneWhenTheDriverAnswersAgain) {
  rig_.set_layout_version(99);
  rig_.set_hang(GetParam());
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_EQ(rig_.frozen_groups(), 1u) << "it is listed still";
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  rig_.set_hang(GetParam(), false);
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

TEST_P(OtherLayoutAndHang, ADamagedOneStaysUntilAllIsThawed) {
  std::filesystem::resize_file(path(), 4096);
  rig_.set_hang(GetParam());
  EXPECT_NE(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_FALSE(is_set_aside()) << "it is tried again";
  EXPECT_NE(rig_.run_gpushared({}), 0) << "an agent would not know what is frozen";
  rig_.set_hang(GetParam(), false);
  EXPECT_EQ(rig_.run_gpushared({"--recover"}), 0) << rig_.output("other.log");
  EXPECT_TRUE(is_set_aside());
  EXPECT_TRUE(goes_on());
}

INSTANTIATE_TEST_SUITE_P(Of, OtherLayoutAndHang, ::testing::Values(0u, sim::kGreeting),
                         [](const auto& hang) {
                           return hang.param == sim::kGreeting ? "TheDriver" : "ItsGpu";
                         });

TEST_F(OtherLayout, ADamagedOneKeepsNoAgentFromStartingWhereThereIsNoDriver) {
  std::filesystem::resize_file(path(), 4096);
  rig_.simulation.reset();
  rig_.start_again();
  EXPECT_TRUE(is_set_aside()) << rig_.output("agent.log");
}

// What requests have set is compared with what holds after the layout has changed.
class SettingsAndAnotherLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    start();
    program_ = rig_.start("spin", kSaturating);
    ASSERT_TRUE(eventually([&] { return rig_.record(program_->pid()).pid != 0; }));
    const std::string pid = std::to_string(program_->pid());
    for (const std::string& request :
         {std::string(R"({"op":"set","tenant":"later","settings":{"weight":"70"},"create":true})"),
          std::string(R"({"op":"set","tenant":"file","settings":{"max":"30%"}})"),
          std::string(R"({"op":"set","tenant":"gone","settings":{},"create":true})"),
          std::string(R"({"op":"set","tenant":"held","settings":{},"create":true})"),
          std::string(R"({"op":"freeze","tenant":"held"})"),
          R"({"op":"attach","tenant":"later","pid":)" + pid + "}",
          R"({"op":"freeze","pid":)" + pid + "}",
          std::string(R"({"op":"remove","tenant":"gone"})")})
      ASSERT_TRUE(rig_.answers(request, R"("ok":true)")) << request;
  }
  void TearDown() override { std::filesystem::remove("/dev/shm" + rig_.region + ".unread"); }
  void start() { rig_.start_agent({"--kept-roster=" + file_}); }
  void expect_all_is_set() {
    EXPECT_TRUE(eventually([&] {
      return rig_.record(program_->pid()).state == ProcessState::kFrozenUser &&
             rig_.tenant("later").process_count == 1;
    })) << rig_.output("agent.log");
    EXPECT_EQ(rig_.tenant("later").weight, 70u);
    EXPECT_EQ(rig_.tenant("file").quota_us, 30'000u);
    EXPECT_EQ(rig_.tenant("file").weight, 40u) << "it is in the file";
    EXPECT_EQ(rig_.tenant("held").frozen_by_user, 1u);
    EXPECT_STREQ(rig_.tenant("gone").name, "");
  }
  bool is_in_file(const std::string& text) const {
    return rig_.output("roster.json").contains(text);
  }

  SystemRig rig_{"[tenant.file]\nweight = 40\n"};
  const std::string file_ = rig_.folder + "/roster.json";
  std::unique_ptr<Child> program_;
};

TEST_F(SettingsAndAnotherLayout, HoldAfterACleanStop) {
  ASSERT_EQ(ended_by(*rig_.gpushared, SIGTERM), 0) << rig_.output("agent.log");
  rig_.set_layout_version(99);
  start();
  EXPECT_TRUE(rig_.output("agent.log").contains("are those of " + file_));
  expect_all_is_set();
}

// The agent is killed in the end, as a call of the driver does not come back.
TEST_F(SettingsAndAnotherLayout, HoldAfterAStopWhileAGpuHangs) {
  rig_.set_hang(0);
  EXPECT_NE(ended_by(*rig_.gpushared, SIGTERM), 0) << rig_.output("agent.log");
  rig_.set_hang(0, false);
  rig_.set_layout_version(99);
  start();
  expect_all_is_set();
}

TEST_F(SettingsAndAnotherLayout, HoldAfterAgentAndSupervisorWereKilled) {
  ASSERT_TRUE(eventually([&] {
    return is_in_file("later") && is_in_file("pid") && !is_in_file("gone");
  })) << "it is written soon";
  rig_.kill_both();
  rig_.set_layout_version(99);
  start();
  expect_all_is_set();
}

TEST_F(SettingsAndAnotherLayout, AreLostWithAWarningWhereTheFileWasTruncated) {
  ASSERT_EQ(ended_by(*rig_.gpushared, SIGTERM), 0);
  std::filesystem::resize_file(file_, 100);
  rig_.set_layout_version(99);
  start();
  EXPECT_TRUE(rig_.output("agent.log").contains("kept as " + file_ + ".bad"))
      << rig_.output("agent.log");
  EXPECT_TRUE(std::filesystem::exists(file_ + ".bad"));
  EXPECT_STREQ(rig_.tenant("later").name, "");
  EXPECT_TRUE(rig_.answers(R"({"op":"status"})", "\"file\""));
}

TEST_F(SettingsAndAnotherLayout, AreForgottenThereToo) {
  ASSERT_TRUE(eventually([&] { return is_in_file("later"); }));
  ASSERT_TRUE(rig_.answers(R"({"op":"forget"})", "\"ok\":true"));
  EXPECT_TRUE(eventually([&] { return !is_in_file("later") && is_in_file("default"); }));
  ASSERT_TRUE(rig_.answers(
      R"({"op":"set","tenant":"later","settings":{"weight":"70"},"create":true})", "\"ok\":true"));
  ASSERT_EQ(ended_by(*rig_.gpushared, SIGTERM), 0);
  ASSERT_TRUE(is_in_file("later"));
  rig_.set_layout_version(99);
  EXPECT_EQ(rig_.run_gpushared({"--forget", "--kept-roster=" + file_}), 0);
  EXPECT_FALSE(std::filesystem::exists(file_));
  start();
  EXPECT_STREQ(rig_.tenant("later").name, "");
}

}  // namespace
}  // namespace gpushare::test
