// SPDX-License-Identifier: Apache-2.0
// `gpushare status`, `tenants` and `gpushare-top --once`: from the control plane, or from the
// socket.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "shmctl/plane/status_json.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tests/tools/support/temp_plane.h"
#include "tools/base/format.h"

namespace gpushare {
namespace {

TEST(GpushareStatus, ReadsTheControlPlaneWithoutAnAgentsHelp) {
  const TempPlane plane;
  const ToolResult result = run_tool("gpushare", {"status"}, {plane.variable(), "COLUMNS=80"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"gpushared: running, pid 1", "NVIDIA H200", "95.0%", "research", "59.7%",
                           "frozen: cap", "?"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  for (size_t at = 0; at < result.out.size(); at = result.out.find('\n', at) + 1)
    EXPECT_LE(display_width(result.out.substr(at, result.out.find('\n', at) - at)), 80u);
  EXPECT_EQ(result.out.find('\033'), std::string::npos);
}

TEST(GpushareStatus, CutsNothingWhereThereIsNoTerminalOrIfAsked) {
  const TempPlane plane;
  constexpr const char* kCommand = "python train.py --epochs 90";
  const auto shows_it = [&](std::vector<std::string> words, const char* columns) {
    const std::string program = words.front() == "--once" ? "gpushare-top" : "gpushare";
    return run_tool(program, words, {plane.variable(), columns}).out.contains(kCommand);
  };
  EXPECT_TRUE(shows_it({"status"}, "COLUMNS="));
  EXPECT_FALSE(shows_it({"status"}, "COLUMNS=60"));
  EXPECT_TRUE(shows_it({"status", "--wide"}, "COLUMNS=60"));
  EXPECT_FALSE(shows_it({"--once"}, "COLUMNS=60"));
  EXPECT_TRUE(shows_it({"--once", "--wide"}, "COLUMNS=60"));
}

TEST(GpushareQueue, CutsNothingWhereThereIsNoTerminalOrIfAsked) {
  const TempPlane plane(Nanos{}, true);
  const auto shows_it = [&](std::vector<std::string> words, const char* columns) {
    return run_tool("gpushare", words, {plane.variable(), columns})
        .out.contains("python train.py --epochs 90");
  };
  EXPECT_TRUE(shows_it({"queue"}, "COLUMNS="));
  EXPECT_FALSE(shows_it({"queue"}, "COLUMNS=60"));
  EXPECT_TRUE(shows_it({"queue", "--wide"}, "COLUMNS=60"));
}

TEST(GpushareStatus, AsksTheSocketWhereThereIsNoControlPlane) {
  FakeAgent agent([](const std::string&) {
    const PlaneSnapshot snapshot = fake_snapshot({.processes = 7}, MonotonicClock().now());
    return std::vector<std::string>{"{\"ok\":true," + status_json(snapshot).substr(1)};
  });
  const ToolResult result = run_tool("gpushare", {"status"}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("research"), std::string::npos);
  EXPECT_EQ(agent.requests(), std::vector<std::string>{R"({"op":"status"})"});
}

TEST(GpushareStatus, BeforeTheFirstAgentItSaysOneThing) {
  const TempDir empty;
  const std::string socket = (empty.path() / "agent.sock").string();
  const ToolResult result = run_tool(
      "gpushare", {"status"},
      {"GPUSHARE_SOCKET=" + socket, "GPUSHARE_REGION=" + (empty.path() / "region").string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("none runs at " + socket + "; start it: "), std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("control plane"), std::string::npos) << result.err;
}

TEST(GpushareStatus, WhatADeadAgentLeftIsShownAsSuch) {
  const TempPlane plane(std::chrono::seconds(30));
  const ToolResult result = run_tool("gpushare", {"status"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("last seen 3"), std::string::npos) << result.out;
}

// A GPU of which a dead agent says nothing is not refused.
TEST(GpushareQueue, WhenTheAgentIsGoneItSaysSo) {
  const TempPlane plane(std::chrono::seconds(30));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"queue"}, {"queue", "--gpu", "1"}}) {
    const ToolResult result = run_tool("gpushare", words, {plane.variable()});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(result.out.contains("last seen 3")) << result.out;
    EXPECT_FALSE(result.out.contains("no GPU takes turns")) << result.out;
  }
}

TEST(GpushareStatus, JsonIsTheWholeState) {
  const TempPlane plane;
  for (const char* program : {"gpushare", "gpushare-top"}) {
    const std::vector<std::string> words = program == std::string("gpushare")
                                               ? std::vector<std::string>{"status", "--json"}
                                               : std::vector<std::string>{"--json"};
    const ToolResult result = run_tool(program, words, {plane.variable()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto parsed = parse_status_json(result.out);
    ASSERT_TRUE(parsed) << parsed.error().message();
    EXPECT_EQ(parsed->processes.size(), 7u);
    EXPECT_EQ(parsed->tenants.size(), 4u);
  }
}

TEST(GpushareStatus, TenantsWithTheirSettings) {
  const TempPlane plane;
  const ToolResult result = run_tool("gpushare", {"tenants"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"TENANT", "research", "300", "20%", "idle"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text;
}

TEST(Gpushare, AFullDiskIsNoSuccess) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "/dev/full is missing";
  const TempPlane plane;
  const ToolResult result = run_tool(
      "sh",
      {"-c", "\"$0\" completion bash > /dev/full",
       std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "gpushare"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("No space left"), std::string::npos);
}

TEST(GpushareTop, OncePrintsTheTable) {
  const TempPlane plane;
  const ToolResult result = run_tool("gpushare-top", {"--once"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("research"), std::string::npos);
}

TEST(GpushareTop, OnceAndJsonHaveTheRowsAskedForInTheOrderAskedFor) {
  const TempPlane plane;
  const auto top = [&](std::vector<std::string> words) {
    return run_tool("gpushare-top", words, {plane.variable()});
  };
  const ToolResult once = top({"--once", "--sort", "mem", "--filter", "RESEARCH"});
  EXPECT_TRUE(once.out.contains("research")) << once.err;
  EXPECT_FALSE(once.out.contains("batch")) << once.out;
  const auto all = parse_status_json(top({"--json", "--sort", "mem"}).out);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->processes.size(), 7u);
  EXPECT_EQ(all->processes.front().record.pid, 4006);
  const auto one = parse_status_json(top({"--json", "--filter", "pid-4003"}).out);
  ASSERT_TRUE(one);
  ASSERT_EQ(one->processes.size(), 1u);
  EXPECT_EQ(one->processes.front().record.pid, 4003);
  for (const char* way : {"--once", "--json"}) {
    const ToolResult wrong = top({way, "--sort", "nosuch"});
    EXPECT_EQ(wrong.exit_code, 2) << way;
    EXPECT_EQ(wrong.out, "");
    EXPECT_TRUE(wrong.err.contains("--sort takes one of gpu pid")) << wrong.err;
  }
}

TEST(GpushareTop, WithoutATerminalItSaysWhatToUse) {
  const ToolResult result = run_tool("gpushare-top", {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("--once"), std::string::npos);
  EXPECT_TRUE(result.err.ends_with("use --once or --json\n")) << result.err;
  EXPECT_EQ(run_tool("gpushare-top", {"-i", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace gpushare
