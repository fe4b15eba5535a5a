// SPDX-License-Identifier: Apache-2.0
// `gpushare run` against a stand-in agent: what it becomes, and what it refuses to start.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_plane.h"
#include "tools/base/format.h"

namespace gpushare {
namespace {

TEST(GpushareRun, BecomesTheProgramWithTheSamePid) {
  FakeAgent agent(answer_ok);
  const ToolResult result =
      run_tool("gpushare",
               {"run", "--tenant", "research", "--weight", "300", "--max", "30000 100000",
                "--memory-max=8G", "--", "sh", "-c", "echo $$; exit 7"},
               {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(result.out, std::to_string(result.pid) + "\n");
  EXPECT_EQ(
      agent.requests(),
      std::vector<std::string>{
          R"({"op":"run","tenant":"research","settings":{"weight":"300","max":"30000 100000",)"
          R"("memory_max":"8G"}})"});
}

TEST(GpushareRun, PreloadsTheShimWhereJobsTakeTurns) {
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{R"({"ok":true,"follows_forks":true,"orders_jobs":true})"};
  });
  const auto preloaded = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "sh", "-c", "echo $LD_PRELOAD"});
    return run_tool("gpushare", options, {socket_variable(agent)});
  };
  const ToolResult with = preloaded({});
  EXPECT_NE(with.out.find("libgpushare.so"), std::string::npos) << with.err;
  EXPECT_EQ(with.err, "");
  const ToolResult without = preloaded({"--no-shim"});
  EXPECT_EQ(without.out.find("libgpushare.so"), std::string::npos);
  EXPECT_NE(without.err.find("is stopped in mid-kernel"), std::string::npos) << without.err;
  EXPECT_EQ(preloaded({"--shim", "--no-shim"}).exit_code, 2);
}

TEST(GpushareRun, DoesNotStartWhatTheAgentRefuses) {
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{
        R"({"ok":false,"error":"'weight' 0","allowed":"1 to 10000","code":"usage"})"};
  });
  const ToolResult result =
      run_tool("gpushare", {"run", "-w", "0", "--allow-unmanaged", "--", "echo", "started"},
               {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "gpushare: gpushared: 'weight' 0; allowed: 1 to 10000\n");
}

TEST(GpushareRun, AnEmptyNameIsNoTenant) {
  FakeAgent agent(answer_ok);
  const ToolResult result =
      run_tool("gpushare", {"run", "--tenant", "", "echo", "started"}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.contains("--tenant takes the name of a tenant")) << result.err;
  EXPECT_TRUE(agent.requests().empty());
}

TEST(GpushareRun, StartsUnmanagedOnlyWhenAsked) {
  const ToolResult refused = run_tool("gpushare", {"run", "echo", "started"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  const ToolResult allowed = run_tool("gpushare", {"run", "--allow-unmanaged", "echo", "started"});
  EXPECT_EQ(allowed.exit_code, 0);
  EXPECT_EQ(allowed.out, "started\n");
  EXPECT_NE(allowed.err.find("warning"), std::string::npos);
}

TEST(GpushareRun, AnOrdinaryUserRunsInTheDefaultTenantAndNowhereElse) {
  if (::geteuid() != 0 || !has_program("setpriv")) GTEST_SKIP() << "needs root and setpriv";
  FakeAgent agent(answer_ok);
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "gpushare";
  const auto as_nobody = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--reuid=65534", "--regid=65534", "--clear-groups"});
    return run_tool("setpriv", words, {socket_variable(agent)});
  };
  if (as_nobody({"test", "-x", program}).exit_code != 0) GTEST_SKIP() << "others may not read it";
  const ToolResult plain = as_nobody({program, "run", "--", "echo", "started"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.out, "started\n");
  EXPECT_EQ(plain.err, "");
  const ToolResult more = as_nobody({program, "run", "-t", "research", "--", "echo", "started"});
  EXPECT_EQ(more.exit_code, 1);
  EXPECT_EQ(more.out, "");
  EXPECT_NE(more.err.find("group gpushare"), std::string::npos) << more.err;
  EXPECT_TRUE(agent.requests().empty());
}

TEST(GpushareRun, SaysThatTheProgramCannotBeStarted) {
  FakeAgent agent(answer_ok);
  const ToolResult result =
      run_tool("gpushare", {"run", "/nonexistent/program"}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.err,
            "gpushare: start the program: /nonexistent/program: No such file or directory\n");
  const ToolResult folder = run_tool("gpushare", {"run", "/"}, {socket_variable(agent)});
  EXPECT_EQ(folder.exit_code, 126);
  EXPECT_EQ(folder.err, "gpushare: start the program: /: Permission denied\n");
}

}  // namespace
}  // namespace gpushare
