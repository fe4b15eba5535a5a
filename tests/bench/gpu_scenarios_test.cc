// SPDX-License-Identifier: Apache-2.0
// Tests gpu-scenarios itself: what it computes, and one whole scenario on the simulated GPU, whose
// outcome does not depend on how fast this machine is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/gpu/report.h"
#include "tests/tools/support/run_tool.h"

namespace gpushare::bench {
namespace {

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

TEST(BenchReport, EachRunIsALineOfTheFile) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("bench-report-test-" + std::to_string(::getpid()) + ".jsonl");
  Report report;
  report.begin("one");
  report.must("a", "b", "c", "d", true);
  report.must("e", "f", "g", "h", true);
  report.end(1);
  for (const char* commit : {"first", "second"})
    EXPECT_TRUE(report.append_to(path, Record().add("commit", commit)));
  std::ifstream file(path);
  std::vector<std::string> commits;
  for (std::string line; std::getline(file, line);)
    commits.push_back(nlohmann::json::parse(line)["commit"]);
  EXPECT_EQ(commits, (std::vector<std::string>{"first", "second"}));
  std::filesystem::remove(path);
}

TEST(GpuScenarios, ResultsUnderTheAgentOnTheSimulationEqualThoseAlone) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto out = std::filesystem::temp_directory_path() /
                   ("gpu-scenarios-test-" + std::to_string(::getpid()) + ".jsonl");
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
