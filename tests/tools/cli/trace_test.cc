// SPDX-License-Identifier: Apache-2.0
// `gpushare trace` against a stand-in agent: what is written when, and what an end in the middle
// leaves.
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_plane.h"

namespace gpushare {
namespace {

std::vector<std::string> trace_lines(uint64_t start_ns) {
  const auto at = [start_ns](uint64_t us) { return std::to_string(start_ns + us * 1000); };
  return {
      R"({"ok":true,"start_ns":)" + at(0) + "}",
      R"({"switch":{"t":)" + at(10) + R"(,"gpu":0,"pid":4000,"start":true}})",
      R"({"switch":{"t":)" + at(2010) + R"(,"gpu":0,"pid":4000,"start":false}})",
      R"({"event":{"t":)" + at(2100) + R"(,"kind":"freeze","pid":4002,"gpu":0,"reason":"cap"}})",
      R"({"switch":{"t":)" + at(2200) + R"(,"gpu":0,"pid":4001,"start":true}})"};
}

uint64_t now_ns() {
  return static_cast<uint64_t>(MonotonicClock().now().time_since_epoch().count());
}

TEST(GpushareTrace, WritesWhatTheAgentStreams) {
  const TempPlane plane;
  FakeAgent agent([](const std::string&) {
    auto lines = trace_lines(now_ns());
    lines.push_back(R"({"end":true,"lost":2})");
    return lines;
  });
  const TempDir dir;
  const ToolResult result = run_tool("gpushare", {"trace", "-d", "0.5", "-o", dir.at("t.json")},
                                     {plane.variable(), socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(agent.requests().front(), R"({"op":"trace","seconds":0.5})");
  EXPECT_NE(result.err.find("3 switches"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("2 records lost"), std::string::npos) << result.err;
  const std::string text = TempDir::read(dir.at("t.json"));
  EXPECT_NE(text.find("python train.py 4000 (research)"), std::string::npos) << text;
  EXPECT_NE(text.find("freeze: cap"), std::string::npos);
  EXPECT_NE(text.find("GPU 0 NVIDIA H200"), std::string::npos);
  // Nothing else is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(GpushareTrace, InterruptedItWritesWhatItHas) {
  FakeAgent agent([](const std::string& request) {
    return request.find("trace") == std::string::npos ? std::vector<std::string>{FakeAgent::kHangUp}
                                                      : trace_lines(now_ns());
  });
  const TempDir dir;
  Child tool = start_tool("gpushare", {"trace", "-d", "60", "-o", dir.at("t.json")},
                          {socket_variable(agent)});
  // The first status is asked for once the trace runs, after the signals were set up.
  const auto runs = tool.await(
      "ask twice", [&] { return agent.requests().size() >= 2; }, std::chrono::seconds(20));
  ASSERT_TRUE(runs) << runs.error().message();
  tool.signal(SIGINT);
  const ToolResult result = result_of(tool);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(TempDir::read(dir.at("t.json")).find("\"traceEvents\""), std::string::npos);
}

TEST(GpushareTrace, WhenTheAgentDiesTheFileIsWrittenAndTheExitCodeSaysSo) {
  FakeAgent agent([](const std::string&) {
    auto lines = trace_lines(now_ns());
    lines.push_back(FakeAgent::kHangUp);
    return lines;
  });
  const TempDir dir;
  const ToolResult result =
      run_tool("gpushare", {"trace", "-d", "60", "-o", dir.at("t.json")}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("closed the connection"), std::string::npos) << result.err;
  EXPECT_NE(TempDir::read(dir.at("t.json")).find("pid 4000"), std::string::npos);
}

TEST(GpushareTrace, AFileThatCannotBeWrittenIsSaidBeforeTheRecording) {
  FakeAgent agent([](const std::string&) { return trace_lines(now_ns()); });
  const ToolResult result = run_tool("gpushare", {"trace", "-d", "60", "-o", "/nonexistent/t.json"},
                                     {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("/nonexistent/t.json: No such file"), std::string::npos) << result.err;
  EXPECT_TRUE(agent.requests().empty());
}

TEST(GpushareTrace, GoesToStandardOutputAndIntoAnothersTrace) {
  FakeAgent agent([](const std::string&) {
    auto lines = trace_lines(now_ns());
    lines.emplace_back(R"({"end":true,"lost":0})");
    return lines;
  });
  const TempDir dir;
  const ToolResult recorded =
      run_tool("gpushare", {"trace", "-d", "0.1", "-o", "-"}, {socket_variable(agent)});
  EXPECT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_TRUE(recorded.out.contains("\"traceEvents\"")) << recorded.out;
  dir.write("ours.json", recorded.out);
  dir.write("torch.json", R"({"baseTimeNanoseconds":1,"traceEvents":[{"ph":"X","name":"step"}]})");
  const ToolResult merged = run_tool("gpushare", {"trace", "--from", dir.at("ours.json"), "--merge",
                                                  dir.at("torch.json"), "-o", "-"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(merged.out.contains("\"step\"") && merged.out.contains("pid 4000")) << merged.out;
  EXPECT_EQ(run_tool("gpushare", {"trace", "--from", dir.at("ours.json")}).exit_code, 2);
  const ToolResult swapped =
      run_tool("gpushare", {"trace", "--from", dir.at("torch.json"), "--merge", dir.at("ours.json"),
                            "-o", dir.at("both.json")});
  EXPECT_EQ(swapped.exit_code, 2) << swapped.err;
  EXPECT_TRUE(swapped.err.contains(dir.at("torch.json") + " is no recording of 'gpushare trace'"))
      << swapped.err;
  EXPECT_FALSE(std::filesystem::exists(dir.at("both.json")));
  dir.write("cut.json", R"({"traceEvents":[)");
  const ToolResult cut = run_tool("gpushare", {"trace", "--from", dir.at("ours.json"), "--merge",
                                               dir.at("cut.json"), "-o", "-"});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_TRUE(cut.err.contains(dir.at("cut.json") + " is no Chrome trace: it is no JSON"))
      << cut.err;

  // What was recorded is kept when the other trace cannot be read.
  const ToolResult alone = run_tool(
      "gpushare", {"trace", "-d", "0.1", "--merge", "/nonexistent", "-o", dir.at("alone.json")},
      {socket_variable(agent)});
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_TRUE(alone.err.contains("/nonexistent") &&
              alone.err.contains("has the recording alone; 'gpushare trace --from"))
      << alone.err;
  EXPECT_TRUE(TempDir::read(dir.at("alone.json")).contains("pid 4000"));
}

TEST(GpushareTrace, ARefusalLeavesTheOldFile) {
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{R"({"ok":false,"error":"not yours","code":"denied"})"};
  });
  const TempDir dir;
  dir.write("t.json", "old");
  const ToolResult result =
      run_tool("gpushare", {"trace", "-o", dir.at("t.json")}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(TempDir::read(dir.at("t.json")), "old");
}

}  // namespace
}  // namespace gpushare
