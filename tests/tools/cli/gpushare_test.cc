// SPDX-License-Identifier: Apache-2.0
// The built programs, as a user starts them, against an agent's socket and a control plane of ours.
#include <gtest/gtest.h>
#include <unistd.h>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>

#include <chrono>
#include <thread>

#include "shmctl/base/version.h"
#include "shmctl/plane/status_json.h"
#include "tests/tools/support/fake_agent.h"
#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/run_tool.h"
#include "tools/agent/agent_service.h"
#include "tools/base/format.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

std::vector<std::string> answer_ok(const std::string&) { return {R"({"ok":true})"}; }

// This control plane was written just now.
class TempPlane {
 public:
  explicit TempPlane(Nanos age = {}) : name_("/gpushare-tools-test-" + std::to_string(::getpid())) {
    auto plane = ControlPlane::create(name_);
    if (!plane) {
      ADD_FAILURE() << plane.error().message();
      return;
    }
    write_plane(plane->region(), fake_snapshot({.gpus = 1, .processes = 7, .agent_pid = 1},
                                               MonotonicClock().now() - age));
  }
  ~TempPlane() { EXPECT_TRUE(ControlPlane::remove(name_)); }
  TempPlane(const TempPlane&) = delete;
  TempPlane& operator=(const TempPlane&) = delete;

  std::string variable() const { return "GPUSHARE_REGION=" + name_; }

 private:
  std::string name_;
};

std::string socket_variable(const FakeAgent& agent) { return "GPUSHARE_SOCKET=" + agent.socket(); }

TEST(Gpushare, EveryCommandOfTheTreeExists) {
  for (const Command& command : gpushare_program().commands) {
    const ToolResult result = run_tool("gpushare", {command.name, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command.name;
    // Without its arguments and without an agent it fails, but it is never killed.
    const ToolResult bare = run_tool("gpushare", {command.name}, {"PATH=/nonexistent"});
    EXPECT_GE(bare.exit_code, 0) << command.name;
    EXPECT_LE(bare.exit_code, 2) << command.name;
  }
}

TEST(Gpushare, UsageErrorsAreTwoAndGoToStderr) {
  const ToolResult result = run_tool("gpushare", {"statsu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("did you mean 'status'?"), std::string::npos);
}

TEST(Gpushare, WithoutAnAgentItSaysHowToStartOne) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status"}, {"set", "a", "weight=1"}, {"run", "--", "true"}}) {
    const ToolResult result = run_tool("gpushare", words);
    EXPECT_EQ(result.exit_code, 1) << words[0];
    EXPECT_NE(result.err.find(how_to_start()), std::string::npos) << result.err;
  }
}

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

TEST(Gpushare, ControlCommandsAskTheAgentAndAreSilent) {
  struct Row {
    std::vector<std::string> words;
    const char* request;
  };
  const Row table[] = {
      {{"set", "a", "weight=3", "max=1 2"},
       R"({"op":"set","tenant":"a","create":false,"settings":{"weight":"3","max":"1 2"}})"},
      {{"set", "-c", "a", "slo_us="},
       R"({"op":"set","tenant":"a","create":true,"settings":{"slo_us":""}})"},
      {{"remove", "a"}, R"({"op":"remove","tenant":"a"})"},
      {{"attach", "12", "a"}, R"({"op":"attach","pid":12,"tenant":"a"})"},
      {{"freeze", "12"}, R"({"op":"freeze","pid":12})"},
      {{"freeze", "12a"}, R"({"op":"freeze","tenant":"12a"})"},
      {{"freeze", "-t", "12"}, R"({"op":"freeze","tenant":"12"})"},
      {{"thaw", "--tenant", "12"}, R"({"op":"thaw","tenant":"12"})"},
      {{"thaw", "a"}, R"({"op":"thaw","tenant":"a"})"},
      {{"forget"}, R"({"op":"forget"})"},
  };
  for (const Row& row : table) {
    FakeAgent agent(answer_ok);
    const ToolResult result = run_tool("gpushare", row.words, {socket_variable(agent)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(agent.requests(), std::vector<std::string>{row.request});
  }
}

TEST(Gpushare, SaysThatAFrozenProcessIsOnNoGpuYet) {
  FakeAgent agent(
      [](const std::string&) { return std::vector<std::string>{R"({"ok":true,"on_gpu":false})"}; });
  const ToolResult frozen = run_tool("gpushare", {"freeze", "12"}, {socket_variable(agent)});
  EXPECT_EQ(frozen.exit_code, 0);
  EXPECT_NE(frozen.err.find("process 12 is on no GPU now"), std::string::npos) << frozen.err;
  const ToolResult thawed = run_tool("gpushare", {"thaw", "12"}, {socket_variable(agent)});
  EXPECT_EQ(thawed.err, "");
}

TEST(Gpushare, WrongArgumentsDoNotReachTheAgent) {
  FakeAgent agent(answer_ok);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"set", "a", "weight"},
                                                {"set", "a", "=3"},
                                                {"attach", "x", "a"},
                                                {"attach", "0", "a"},
                                                {"attach", "1", "a"},
                                                {"freeze", "99999999999"},
                                                {"freeze", ""},
                                                {"trace", "-d", "0"},
                                                {"trace", "-d", "1e9"},
                                                {"trace", "-d", "nan"},
                                                {"completion", "csh"}})
    EXPECT_EQ(run_tool("gpushare", words, {socket_variable(agent)}).exit_code, 2)
        << words[0] << " " << words[1];
  EXPECT_TRUE(agent.requests().empty());
}

TEST(Gpushare, ATenantThatIsNotThereIsSuggestedOrMade) {
  const TempPlane plane;
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{R"({"ok":false,"error":"there is no tenant","code":"usage"})"};
  });
  const auto complaint = [&](std::vector<std::string> words) {
    const ToolResult result =
        run_tool("gpushare", words, {socket_variable(agent), plane.variable()});
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_NE(complaint({"set", "reserch", "weight=3"}).find("did you mean 'research'?"),
            std::string::npos);
  EXPECT_NE(complaint({"attach", "12", "new"}).find("'gpushare set --create new weight=100'"),
            std::string::npos);
  EXPECT_EQ(complaint({"freeze", "research"}), "gpushare: gpushared: there is no tenant\n")
      << "it is there, so something else was wrong";
}

TEST(Gpushare, WhatHasNoEffectIsSaid) {
  const TempPlane plane;
  FakeAgent agent(answer_ok);
  const auto warnings = [&](std::vector<std::string> words) {
    const ToolResult result =
        run_tool("gpushare", words, {socket_variable(agent), plane.variable()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_NE(warnings({"set", "research", "sm_percent=50"}).find("sm_percent=50 does not bind: "),
            std::string::npos);
  EXPECT_NE(warnings({"run", "--sm-percent", "50", "--", "true"}).find("warning: sm_percent=50"),
            std::string::npos);
  EXPECT_EQ(warnings({"set", "research", "weight=50", "sm_percent=max"}), "");
  EXPECT_NE(warnings({"remove", "research"}).find("1 process of research ran on a GPU"),
            std::string::npos);
}

TEST(Gpushare, ExitCodesTellWrongFromRefused) {
  for (const auto& [code, expected] :
       {std::pair{"usage", 2}, std::pair{"denied", 1}, std::pair{"failed", 1}}) {
    FakeAgent agent([said = std::string(code)](const std::string&) {
      return std::vector<std::string>{R"({"ok":false,"error":"no","code":")" + said + "\"}"};
    });
    EXPECT_EQ(run_tool("gpushare", {"remove", "a"}, {socket_variable(agent)}).exit_code, expected);
  }
}

TEST(Gpushare, AnAgentThatHangsUpOrTalksNonsenseIsAFailure) {
  for (const char* line : {FakeAgent::kHangUp, "nonsense", "{\"ok\":1}"}) {
    FakeAgent agent([line](const std::string&) { return std::vector<std::string>{line}; });
    const ToolResult result = run_tool("gpushare", {"remove", "a"}, {socket_variable(agent)});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err, "");
  }
}

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

TEST(GpushareStatus, WhatADeadAgentLeftIsShownAsSuch) {
  const TempPlane plane(std::chrono::seconds(30));
  const ToolResult result = run_tool("gpushare", {"status"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("last seen 3"), std::string::npos) << result.out;
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

TEST(GpushareVersion, WorksWithAndWithoutAnAgent) {
  EXPECT_EQ(run_tool("gpushare", {"version"}).exit_code, 0);
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{
        R"({"ok":true,"version":"9.9.9","commit":"abc","pid":5,"region":"/r","is_admin":true})"};
  });
  const ToolResult text = run_tool("gpushare", {"version"}, {socket_variable(agent)});
  EXPECT_EQ(text.out, std::string("gpushare ") + kVersion + " (" + kCommit +
                          ")\ngpushared 9.9.9 (abc), pid 5\n");
  const ToolResult json = run_tool("gpushare", {"version", "--json"}, {socket_variable(agent)});
  EXPECT_EQ(json.out, std::string("{\"version\":\"") + kVersion + "\",\"commit\":\"" + kCommit +
                          R"(","agent":{"version":"9.9.9","commit":"abc","pid":5}})" + "\n");
}

TEST(GpushareDoctor, FailsWithoutAnAgentAndIsJsonOnDemand) {
  const ToolResult text = run_tool("gpushare", {"doctor"});
  EXPECT_EQ(text.exit_code, 1);
  for (const char* part : {"agent", "fix: ", "Limits:", "sm_percent", "memory_max"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  const ToolResult json = run_tool("gpushare", {"doctor", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  TempDir dir;
  dir.write("doctor.json", json.out);
  const ToolResult read =
      run_tool("python3", {"-c",
                           "import json,sys; d = json.load(open(sys.argv[1])); "
                           "print(d['agent_checks'], [l['limit'] for l in d['limits']], "
                           "{c['state'] for c in d['checks']} <= {'ok', 'warning', 'fail'})",
                           dir.at("doctor.json")});
  EXPECT_EQ(read.out,
            "None ['weight', 'max', 'priority', 'memory_max', 'sm_percent', 'slo_us'] "
            "True\n")
      << read.err;
}

TEST(GpushareRecover, LeavesALivingAgentAlone) {
  const TempPlane plane;
  const ToolResult result = run_tool("gpushare", {"recover"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("the agent runs (pid 1)"), std::string::npos);
}

TEST(GpushareRecover, BecomesTheGpusharedBesideIt) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const fs::path built =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "gpushare";
  fs::copy_file(built, dir.at("gpushare"));
  dir.write("gpushared", "#!/bin/sh\necho \"$@\"\nexit 5\n");
  fs::permissions(dir.at("gpushared"), fs::perms::owner_all);
  const ToolResult result =
      run_tool(dir.at("gpushare"), {"recover", "--region", "/gpushare-test-x"});
  EXPECT_EQ(result.out, "--recover --region /gpushare-test-x\n") << result.err;
  EXPECT_EQ(result.exit_code, 5);
  const ToolResult forgotten = run_tool(
      dir.at("gpushare"), {"forget", "--region", "/gpushare-test-x", "--socket", dir.at("none")});
  EXPECT_EQ(forgotten.out, "--forget --region /gpushare-test-x\n") << "no agent runs there";
  EXPECT_EQ(forgotten.exit_code, 5);
}

// --- trace ---

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

// --- gpushare-top ---

TEST(GpushareTop, OncePrintsTheTable) {
  const TempPlane plane;
  const ToolResult result = run_tool("gpushare-top", {"--once"}, {plane.variable()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("research"), std::string::npos);
}

TEST(GpushareTop, WithoutATerminalItSaysWhatToUse) {
  const ToolResult result = run_tool("gpushare-top", {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("--once"), std::string::npos);
  EXPECT_EQ(run_tool("gpushare-top", {"-i", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace gpushare
