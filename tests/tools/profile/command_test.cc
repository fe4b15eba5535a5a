// SPDX-License-Identifier: Apache-2.0
// gpushare profile on the simulated GPU's list of GPUs, with a program that tells of iterations as
// the shim does.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/profile/sweep.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class ProfileCommand : public ::testing::Test {
 protected:
  ProfileCommand() {
    const auto listens =
        simulation_.await("listen", [&] { return std::filesystem::exists(socket_); }, 5min);
    EXPECT_TRUE(listens) << listens.error().message();
  }

  ToolResult profile(std::vector<std::string> options, const std::string& how) {
    options.insert(options.begin(), "profile");
    options.insert(options.end(), {"--", program()});
    if (!how.empty()) options.push_back(how);
    return run_tool("gpushare", options, {"GPUSHARE_SIM=" + socket_, "TMPDIR=" + folder_.at("")});
  }
  static std::string program() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "iterating_program";
  }

  const TempDir folder_;
  const std::string socket_ = folder_.at("sim.sock");
  Child simulation_ = start_tool("gpushare-sim", {"--socket", socket_});
};

TEST_F(ProfileCommand, DrawsTheCurveOfOneRun) {
  const ToolResult result = profile({"-g", "1,4,12", "-n", "12", "--slo-us", "5000", "--json",
                                     folder_.at("sweep.json"), "--svg", folder_.at("sweep.svg")},
                                    "");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("iterating_program on Simulated H200"), std::string::npos)
      << result.out;
  EXPECT_EQ(result.out.find("hello"), std::string::npos) << "the program's output goes elsewhere";
  EXPECT_NE(result.err.find("hello from the program"), std::string::npos);
  EXPECT_NE(result.err.find("gpushare: 1 of 3: 96 SMs"), std::string::npos) << result.err;
  const auto sweep = parse_sweep(TempDir::read(folder_.at("sweep.json")));
  ASSERT_TRUE(sweep) << sweep.error().message();
  ASSERT_EQ(sweep->points.size(), 3u);
  EXPECT_NEAR(sweep->points[0].mean_us, 24'000, 1);
  EXPECT_NEAR(sweep->points[2].mean_us, 2'000, 1);
  EXPECT_EQ(sweep->knee_groups, 12u);
  EXPECT_EQ(sweep->slo_us, 5000.0);
  EXPECT_TRUE(TempDir::read(folder_.at("sweep.svg")).starts_with("<svg"));
  for (const auto& left : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_FALSE(left.path().filename().string().starts_with("gpushare-profile")) << left.path();
}

// With the real library, on the simulated GPU: a training loop that knows nothing of us.
TEST_F(ProfileCommand, MovesAProgramThatKnowsNothingOfIt) {
  const std::filesystem::path build =
      std::filesystem::path(program()).parent_path().parent_path().parent_path();
  const ToolResult result =
      run_tool("gpushare",
               {"profile", "-g", "1,15", "-n", "50", "--json", folder_.at("sweep.json"), "--",
                build / "bin/workloads/steps", "--mode", "train", "--iterations", "10000000",
                "--units", "200"},
               {"GPUSHARE_SIM=" + socket_, "LD_LIBRARY_PATH=" + (build / "lib/sim").string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto sweep = parse_sweep(TempDir::read(folder_.at("sweep.json")));
  ASSERT_TRUE(sweep) << sweep.error().message();
  ASSERT_EQ(sweep->points.size(), 2u);
  for (const SweepPoint& point : sweep->points) EXPECT_GE(point.iterations, 50U);
}

TEST_F(ProfileCommand, SaysWhyThereIsNothingToMeasure) {
  EXPECT_NE(profile({"--wait", "0.5"}, "nothing").err.find("made no use of CUDA"),
            std::string::npos);
  const ToolResult silent = profile({"--wait", "0.5"}, "silent");
  EXPECT_EQ(silent.exit_code, 1);
  EXPECT_NE(silent.err.find("no iterations were recognised"), std::string::npos) << silent.err;
  const ToolResult stays = profile({"--wait", "0.5"}, "stays");
  EXPECT_EQ(stays.exit_code, 1);
}

TEST_F(ProfileCommand, AProgramThatEndsEarlyIsShownAsFarAsItCame) {
  const ToolResult result = profile({"-g", "4,12", "-n", "20"}, "ends");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("ended with exit code 3 at step 2 of 2"), std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("  12   96"), std::string::npos) << result.out;
}

TEST_F(ProfileCommand, WrongUsageIsTwo) {
  for (const std::vector<std::string>& options : {std::vector<std::string>{"-g", "17"},
                                                  {"-g", "0"},
                                                  {"-g", "2-1"},
                                                  {"-g", "x"},
                                                  {"-n", "4"},
                                                  {"-s", "0"},
                                                  {"--slo-us", "-1"},
                                                  {"--device", "1"}}) {
    const ToolResult result = profile(options, "");
    EXPECT_EQ(result.exit_code, 2) << options[0] << " " << options[1] << "\n" << result.err;
  }
  EXPECT_EQ(run_tool("gpushare", {"profile", "--", "/no/such/program"}, {"GPUSHARE_SIM=" + socket_})
                .exit_code,
            1);
}

TEST(ProfileSweepGroups, AreAListOfNumbersAndRanges) {
  EXPECT_EQ(parse_groups("8,1,4-6,5", 15), (std::vector<uint32_t>{1, 4, 5, 6, 8}));
  for (const char* wrong :
       {"", ",", "1,", "1-", "-3", "0", "16", "3-2", "1;2", "1 2", "99999999999"})
    EXPECT_FALSE(parse_groups(wrong, 15)) << wrong;
}

TEST(ProfileSweepFile, ComesBackAsItWas) {
  const Sweep before{
      .command = "serve \"a\"",
      .gpu = "NVIDIA H200",
      .sms = 132,
      .sms_per_group = 8,
      .knee_groups = 2,
      .slo_us = {},
      .points = {{1, 50, 20'000, 21'000}, {2, 50, 10'200, 10'300}, {4, 50, 10'000, 10'100}}};
  EXPECT_EQ(knee_of(before), 2u);
  const auto after = parse_sweep(sweep_json(before));
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ(after->command, before.command);
  EXPECT_EQ(after->knee_groups, 2u);
  EXPECT_FALSE(after->slo_us);
  ASSERT_EQ(after->points.size(), 3u);
  EXPECT_EQ(after->points[1].mean_us, 10'200);
}

}  // namespace
}  // namespace gpushare
