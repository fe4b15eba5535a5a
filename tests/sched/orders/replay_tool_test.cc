// SPDX-License-Identifier: Apache-2.0
// order-replay and the converter of Slurm's accounting, as an operator uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "shmctl/program/temp_folder.h"
#include "tests/tools/support/run_tool.h"

namespace gpushare {
namespace {

using testing::HasSubstr;

constexpr const char* kReplay = "bench/order-replay";
constexpr const char* kConverter = "bench/sched/sacct_trace.py";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(OrderReplay, PrintsATableOfTheOrdersAndIdeals) {
  const ToolResult result = run_tool(kReplay, {"--generate", "n=20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* row : {"\nfifo ", "\nsrtf ", "\nturns ", "\nideal: shortest left "})
    EXPECT_THAT(result.out, HasSubstr(row));
}

TEST(OrderReplay, ItsJsonIsTheSameOnEveryMachine) {
  const ToolResult result = run_tool(kReplay, {"--order", "srtf", "--json"});
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(
      json.at("orders").at(0).dump(),
      R"({"makespan_s":18180.0315,"mean_gap_us":300,"mean_s":3200.083663,"order":"srtf",)"
      R"("p95_s":14100.63,"p99_s":15557.4312,"queuing_s":2907.883174,"stops_in_mid_kernel":0,)"
      R"("switches":105,"utilisation_percent":99.999})");
}

TEST(OrderReplay, ReadsWhatItHasWrittenAndDrawsIt) {
  const TempFolder folder = TempFolder::make("gpushare-replay").value();
  const std::string trace = folder.at("trace.csv"), picture = folder.at("curves.svg");
  const ToolResult made = run_tool(kReplay, {"--jitter", "5", "--write-trace", trace, "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ToolResult again = run_tool(kReplay, {"--trace", trace, "--svg", picture, "--json"});
  EXPECT_EQ(again.out, made.out);
  EXPECT_THAT(text_of(picture), HasSubstr(">srtf</text>"));
}

TEST(OrderReplay, ErrorsNameWhatIsWrongAndWhatIsAllowed) {
  const TempFolder folder = TempFolder::make("gpushare-replay").value();
  const std::string trace = folder.at("trace.csv");
  write(trace, "job,submit_s,iterations,iteration_us,gpus\na,0,1,5,1\nb,0,x,5,1\n");
  const struct {
    std::vector<std::string> arguments;
    int code;
    std::string error;
  } rows[] = {
      {{"--trace", trace}, 1, trace + ":3: iterations: 'x' is not allowed; allowed: 1 to"},
      {{"--trace", "/nonexistent.csv"}, 1, "/nonexistent.csv: No such file"},
      {{"--generate", "n=0"}, 2, "'n=0' is not allowed; allowed: n=1 to 100000"},
      {{"--generate", "size=3"}, 2, "'size=3' is not allowed"},
      {{"--order", "fair"}, 2, "'fair' is no policy that orders jobs"},
      {{"--told", "everything"},
       2,
       "'everything' is not allowed; allowed: length, command, nothing"},
      {{"--trace", trace, "--generate", "n=3"}, 2, "exclude each other"},
  };
  for (const auto& row : rows) {
    const ToolResult result = run_tool(kReplay, row.arguments);
    EXPECT_EQ(result.exit_code, row.code) << row.error;
    EXPECT_THAT(result.err, HasSubstr(row.error));
  }
}

TEST(SacctTrace, MakesATraceThatIsReplayed) {
  if (!has_program("python3")) GTEST_SKIP() << "no python3";
  const TempFolder folder = TempFolder::make("gpushare-replay").value();
  const std::string week = folder.at("week.txt"), trace = folder.at("week.csv");
  write(week,
        "JobID|JobName|Submit|Start|ElapsedRaw|AllocTRES\n"
        "1|train|2026-11-22T10:00:00|2026-11-22T10:01:00|600|cpu=8,gres/gpu=1,gres/gpu:h200=1\n"
        "2|cpu|2026-11-22T10:00:10|2026-11-22T10:01:00|60|cpu=8\n"
        "3|two, \"big\"|2026-11-22T10:00:20|2026-11-22T11:00:00|30|gres/gpu:h200=2\n"
        "4|never|2026-11-22T10:00:20|Unknown|0|\n");
  ToolResult made = run_tool("python3", {kConverter, week});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("2 jobs; left out: 1 without a GPU, 1 that never ran"));
  write(trace, made.out);
  const ToolResult refused = run_tool(kReplay, {"--trace", trace});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("the job '3' works on 2 GPUs at once"));
  made = run_tool("python3", {kConverter, "--split", week});
  write(trace, made.out);
  const ToolResult result = run_tool(kReplay, {"--trace", trace, "--gpus", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out).at("jobs"), 3);
  const ToolResult wrong = run_tool("python3", {kConverter, trace});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_THAT(wrong.err, HasSubstr("line 1: no column JobID, Submit, ElapsedRaw"));
}

}  // namespace
}  // namespace gpushare
