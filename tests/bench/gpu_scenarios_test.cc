// SPDX-License-Identifier: Apache-2.0
// The measuring program itself: what it computes, and one whole scenario on the simulated GPU, of
// the kind whose outcome does not depend on how fast this machine is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bench/gpu/child.h"
#include "bench/gpu/report.h"
#include "tests/tools/run_tool.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;

TEST(BenchReport, MedianOfAnEvenNumberLiesBetween) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(BenchReport, OneBrokenPromiseIsNotAllKept) {
  Report report;
  report.begin("one");
  report.must("a", "b", "c", "d", true);
  EXPECT_TRUE(report.all_kept());
  report.must("a", "b", "c", "d", false);
  report.end(1);
  EXPECT_FALSE(report.all_kept());
  EXPECT_NE(report.table().find("FAIL"), std::string::npos);
}

TEST(BenchReport, RecordIsJsonWhateverTheText) {
  EXPECT_EQ(Record().add("a", "q\"\\\n").add("b", 0.5).add("c", std::vector<double>{1, 2}).text(),
            R"({"a": "q\"\\\u000a", "b": 0.5, "c": [1, 2]})");
}

constexpr char kLines[] =
    "{\"t_ns\":1000000,\"turns\":0}\n{\"t_ns\":2000000,\"turns\":100}\n"
    "{\"t_ns\":3000000,\"turns\":100}\n{\"t_ns\":4000000,\"turns\":300}\n";

TEST(BenchProgress, RateIsInterpolatedBetweenReports) {
  EXPECT_DOUBLE_EQ(rate_between(kLines, "turns", Time{1500us}, Time{3500us}), 75);
}

TEST(BenchProgress, StandingStillIsNoProgress) {
  EXPECT_EQ(first_progress(kLines, "turns", Time{2000us}), Time{4000us});
  EXPECT_EQ(first_progress(kLines, "turns", Time{3500us}), std::nullopt);
}

TEST(BenchProgress, ReadsMembersOfALine) {
  EXPECT_EQ(number_in(R"({"a":"x","b":2.5})", "b"), 2.5);
  EXPECT_EQ(number_in(R"({"a":"x"})", "a"), std::nullopt);
  EXPECT_EQ(text_in(R"({"a":"x","b":2.5})", "a"), "x");
}

TEST(GpuScenarios, ResultsUnderTheAgentOnTheSimulationEqualThoseAlone) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto out = std::filesystem::temp_directory_path() /
                   ("gpu-scenarios-test-" + std::to_string(::getpid()) + ".json");
  const ToolResult ran =
      run_tool(folder / "bench/gpu-scenarios",
               {"--sim", "--only", "bit-equal", "--seconds", "0.5", "--out", out});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  std::ifstream file(out);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(json.find("\"all_kept\": true"), std::string::npos) << json;
  std::filesystem::remove(out);
}

TEST(GpuScenarios, AnUnknownNameIsWrongUse) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  EXPECT_EQ(run_tool(folder / "bench/gpu-scenarios", {"--sim", "--only", "nothing"}).exit_code, 2);
}

}  // namespace
}  // namespace gpushare::bench
