// SPDX-License-Identifier: Apache-2.0
// The built programs, as a user starts them, against an agent's socket and a control plane of ours.
#include <gtest/gtest.h>

#include <filesystem>

#include "shmctl/base/version.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_plane.h"
#include "tools/agent/agent_service.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

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

TEST(Gpushare, AnOptionOfACommandComesAfterIt) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--json", "status"}, {"--region", "/x", "--json", "status"}}) {
    const ToolResult result = run_tool("gpushare", words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.err.contains("comes after it: gpushare status --json\n")) << result.err;
    EXPECT_FALSE(result.err.contains("did you mean")) << result.err;
  }
  EXPECT_TRUE(run_tool("gpushare", {"-t", "a", "run", "true"}).err.contains("gpushare run -t"));
  const auto wrong = [](std::vector<const char*> words) {
    return misplaced_words(gpushare_program(), words);
  };
  for (const std::vector<const char*>& words : {std::vector<const char*>{},
                                                {"status", "--json"},
                                                {"--region=/x", "status", "--json"},
                                                {"--help"},
                                                {"-V"},
                                                {"--jsno", "status"},
                                                {"--print-completion", "bash"},
                                                {"run", "--", "reload"},
                                                {"--socket", "reload", "status"},
                                                {"--weight", "status"}})
    EXPECT_EQ(wrong(words), std::nullopt);
  EXPECT_TRUE(wrong({"--json"})) << "it is not for gpushare itself";
}

TEST(Gpushare, WhoWantsToReloadIsNotLedToPreload) {
  for (const char* word : {"reload", "relaod"}) {
    const ToolResult result = run_tool("gpushare", {word});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.err.contains("systemctl reload gpushared")) << result.err;
    EXPECT_FALSE(result.err.contains("preload")) << result.err;
  }
  EXPECT_TRUE(run_tool("gpushare", {"prelaod"}).err.contains("did you mean 'preload'?"));
}

TEST(Gpushare, WithoutAnAgentItSaysHowToStartOne) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status"}, {"set", "a", "weight=1"}, {"run", "--", "true"}}) {
    const ToolResult result = run_tool("gpushare", words);
    EXPECT_EQ(result.exit_code, 1) << words[0];
    EXPECT_NE(result.err.find(how_to_start()), std::string::npos) << result.err;
  }
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

TEST(Gpushare, TheDefaultTenantIsNotRemoved) {
  FakeAgent agent(answer_ok);
  const ToolResult result = run_tool("gpushare", {"remove", "default"}, {socket_variable(agent)});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.err.contains("the tenant 'default' cannot be removed")) << result.err;
  EXPECT_TRUE(agent.requests().empty());
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

TEST(Gpushare, ANumberThatIsNoProcessMayBeATenantsName) {
  FakeAgent agent([](const std::string&) {
    return std::vector<std::string>{R"({"ok":false,"error":"there is no process","code":"usage"})"};
  });
  const ToolResult refused = run_tool("gpushare", {"thaw", "4711"}, {socket_variable(agent)});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("'gpushare thaw --tenant 4711' means a tenant of this name"),
            std::string::npos)
      << refused.err;
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
  EXPECT_NE(complaint({"set", "new", "memory_max=1.5G", "max=1 2"})
                .find("'gpushare set --create new memory_max=1.5G \"max=1 2\"'"),
            std::string::npos)
      << "what was to be set is not to be typed again";
  EXPECT_NE(complaint({"run", "--tenant", "new", "--", "true"}).find("'gpushare set --create new"),
            std::string::npos);
  EXPECT_NE(complaint({"attach", "12", "new"}).find("'gpushare set --create new weight=100'"),
            std::string::npos);
  EXPECT_NE(complaint({"attach", "12", "no name"}).find("allowed: 1 to 63 of A-Z"),
            std::string::npos)
      << "it cannot be made";
  EXPECT_EQ(complaint({"freeze", "research"}), "gpushare: gpushared: there is no tenant\n")
      << "it is there, so something else was wrong";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"remove", "new"}, {"freeze", "new"}, {"set", "--create", "neu:", "weight=5"}})
    EXPECT_EQ(complaint(words), "gpushare: gpushared: there is no tenant\n")
        << words[0] << ": making it is of no use";
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
            "None ['weight', 'max', 'priority', 'memory_max', 'sm_percent', 'sm_min', 'sm_shown', "
            "'slo_us', 'phase'] True\n")
      << read.err;
}

// Programs choose their names, and root reads what is said of them.
TEST(GpushareDoctor, ShowsNoCommandsOfTheTerminal) {
  constexpr const char* kFound =
      R"json({"ok":true,"checks":[{"check":"turns","state":"warning",)json"
      R"json("detail":"none of a (\u001b]0;x\u0007\u009b2J)","fix":"end \u001b[1mit"}]})json";
  constexpr const char* kHello =
      R"json({"ok":true,"version":"9","commit":"a","pid":5,"region":"/r","is_admin":true})json";
  FakeAgent agent([&](const std::string& request) {
    return std::vector<std::string>{request.contains("doctor") ? kFound : kHello};
  });
  const ToolResult text = run_tool("gpushare", {"doctor"}, {socket_variable(agent)});
  EXPECT_TRUE(text.out.contains("none of a (?]0;x??2J)")) << text.out;
  EXPECT_TRUE(text.out.contains("fix: end ?[1mit")) << text.out;
  EXPECT_FALSE(text.out.contains('\x1b'));
  const ToolResult json = run_tool("gpushare", {"doctor", "--json"}, {socket_variable(agent)});
  EXPECT_TRUE(json.out.contains("\\u001b]0;x\\u0007")) << json.out;
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

// The other one is not that of the usual agent: two agents would be mixed.
TEST(GpushareRecover, WhoNamesOneOfSocketAndRegionNamesNoOtherAgent) {
  const TempDir dir;
  const std::vector<std::string> unset{"GPUSHARE_SOCKET=", "GPUSHARE_REGION="};
  const ToolResult recovered = run_tool("gpushare", {"recover", "--socket", dir.at("none")}, unset);
  EXPECT_EQ(recovered.exit_code, 2);
  EXPECT_NE(recovered.err.find("--region was not given"), std::string::npos) << recovered.err;
  for (const char* op : {"forget", "set"}) {
    std::vector<std::string> words{op, "--region", dir.at("region")};
    if (words[0] == "set") words.insert(words.end(), {"a", "weight=7"});
    const ToolResult told = run_tool("gpushare", words, unset);
    EXPECT_EQ(told.exit_code, 2) << op;
    EXPECT_NE(told.err.find("no --socket"), std::string::npos) << told.err;
  }
  const ToolResult seen = run_tool("gpushare", {"status", "--region", dir.at("region")}, unset);
  EXPECT_EQ(seen.exit_code, 1);
  EXPECT_EQ(seen.err.find("/run/gpushare"), std::string::npos) << seen.err;
}

TEST(Gpushared, SimWithoutASocketIsThatOfTheEnvironment) {
  const TempDir dir;
  const std::string socket = dir.at("none/sim.sock");
  const ToolResult result = run_tool(
      "gpushared", {"--sim", "--socket", dir.at("agent.sock"), "--region", dir.at("region")},
      {"GPUSHARE_SIM=" + socket});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find(socket), std::string::npos) << result.err;
}

}  // namespace
}  // namespace gpushare
