// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/completion.h"

#include <gtest/gtest.h>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tests/tools/support/temp_plane.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

TEST(Completion, EveryShellKnowsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(gpushare_program(), shell);
    for (const Command& command : gpushare_program().commands) {
      EXPECT_NE(script.find(command.name), std::string::npos) << shell << command.name;
      for (const Option& option : command.options) {
        const std::string name = std::string(shell == std::string("fish") ? "-l " : "--");
        EXPECT_NE(script.find(name + std::string(option.name)), std::string::npos)
            << shell << option.name;
      }
    }
  }
}

TEST(Completion, WhatIsHiddenIsNotOffered) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = run_tool("gpushared", {"--print-completion", shell}).out;
    EXPECT_TRUE(script.contains("check-config")) << script;
    EXPECT_FALSE(script.contains("lifeline-fd")) << shell << ": the supervisor's own option";
  }
}

TEST(Completion, EachProgramPrintsItsOwn) {
  for (const char* program :
       {"gpushare", "gpushare-top", "gpushare-sim", "gpushare-exporter", "gpushared"}) {
    TempDir dir;
    for (const char* shell : {"bash", "zsh", "fish"}) {
      const ToolResult script = run_tool(program, {"--print-completion", shell});
      EXPECT_EQ(script.exit_code, 0) << program;
      EXPECT_TRUE(script.out.contains("socket") || script.out.contains("listen")) << program;
      if (!has_program(shell)) continue;
      dir.write("script", script.out);
      EXPECT_EQ(run_tool(shell, {"-n", dir.at("script")}).exit_code, 0) << program << shell;
    }
  }
  if (!has_program("bash")) GTEST_SKIP() << "bash is missing";
  TempDir dir;
  dir.write("script", run_tool("gpushare-top", {"--print-completion", "bash"}).out);
  const ToolResult offers = run_tool(
      "bash", {"-c",
               "source \"$1\"; COMP_WORDS=(gpushare-top --inter); COMP_CWORD=1; _gpushare_top; "
               "echo \"${COMPREPLY[*]}\"",
               "bash", dir.at("script")});
  EXPECT_EQ(offers.out, "--interval\n") << offers.err;
}

TEST(Completion, TheShellsAcceptTheScripts) {
  int accepted = 0;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    if (!has_program(shell)) continue;
    TempDir dir;
    dir.write("script", completion_script(gpushare_program(), shell));
    const ToolResult result = run_tool(shell, {"-n", dir.at("script")});
    EXPECT_EQ(result.exit_code, 0) << shell << ": " << result.err;
    ++accepted;
  }
  if (accepted == 0) GTEST_SKIP() << "neither bash nor zsh nor fish is installed";
}

// Returns what bash offers for a command line whose last word is being typed.
std::string bash_offers(const std::string& line) {
  TempDir dir;
  dir.write("script", completion_script(gpushare_program(), "bash"));
  const ToolResult result = run_tool(
      "bash", {"-c",
               "source \"$1\"; "
               "_gpushare_tenants() { echo research; echo batch; }; "
               "_gpushare_pids() { echo 4711; }; "
               "read -ra COMP_WORDS <<< \"$2\"; [[ $2 == *' ' ]] && COMP_WORDS+=(''); "
               "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpushare; echo \"${COMPREPLY[*]}\"",
               "bash", dir.at("script"), line});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// All shells read them from what `gpushare tenants` prints, by the same words.
TEST(Completion, TenantsAreOfferedWithoutWhatIsSaidOfThem) {
  if (!has_program("bash")) GTEST_SKIP() << "bash is missing";
  const TempPlane plane({}, false, [](PlaneSnapshot& snapshot) {
    snapshot.tenants[0].record.memory_max_bytes = uint64_t{1} << 30;  // it has no module
  });
  const ToolResult tenants = run_tool("gpushare", {"tenants"}, {plane.variable()});
  EXPECT_TRUE(tenants.err.contains("! memory_max does not bind: ")) << tenants.err;
  TempDir dir;
  dir.write("script", completion_script(gpushare_program(), "bash"));
  const auto programs =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
  const ToolResult offers = run_tool(
      "bash", {"-c", "source \"$1\"; export \"$3\"; PATH=\"$2:$PATH\" _gpushare_tenants | sort",
               "bash", dir.at("script"), programs, plane.variable()});
  EXPECT_EQ(offers.out, "batch\ncapped\ndefault\nresearch\n") << offers.err;
}

TEST(Completion, BashOffersWhatFits) {
  if (!has_program("bash")) GTEST_SKIP() << "bash is missing";
  EXPECT_EQ(bash_offers("gpushare sta"), "status\n");
  EXPECT_EQ(bash_offers("gpushare t"), "tenants thaw trace\n");
  EXPECT_EQ(bash_offers("gpushare help prof"), "profile\n");
  EXPECT_EQ(bash_offers("gpushare attach 4711 "), "research batch\n");
  EXPECT_EQ(bash_offers("gpushare set re"), "research\n");
  EXPECT_EQ(bash_offers("gpushare set research w"), "weight=\n");
  EXPECT_EQ(bash_offers("gpushare set --socket /s research sl"), "slo_us=\n");
  EXPECT_EQ(bash_offers("gpushare set research priority="),
            "priority= priority=idle priority=normal priority=high\n");
  EXPECT_EQ(bash_offers("gpushare set research weight = 3 priority = n"), "normal\n")
      << "as bash splits words";
  EXPECT_EQ(bash_offers("gpushare set research priority ="), "idle normal high\n");
  EXPECT_EQ(bash_offers("gpushare --socket /s st"), "status\n");
  EXPECT_EQ(bash_offers("gpushare run --pr"), "--priority\n");
  EXPECT_EQ(bash_offers("gpushare run --priority "), "idle normal high\n");
  EXPECT_EQ(bash_offers("gpushare run --priority = "), "idle normal high\n");
  EXPECT_EQ(bash_offers("gpushare run --priority ="), "idle normal high\n");
  EXPECT_EQ(bash_offers("gpushare run --priority = h"), "high\n");
  EXPECT_EQ(bash_offers("gpushare run -p h"), "high\n");
  EXPECT_EQ(bash_offers("gpushare run -t "), "research batch\n");
  EXPECT_EQ(bash_offers("gpushare remove "), "research batch\n");
  EXPECT_EQ(bash_offers("gpushare freeze "), "research batch 4711\n");
  EXPECT_EQ(bash_offers("gpushare attach "), "4711\n");
  EXPECT_EQ(bash_offers("gpushare completion z"), "zsh\n");
  EXPECT_EQ(bash_offers("gpushare status --j"), "--json\n");
  EXPECT_EQ(bash_offers("gpushare preload "), "enable disable status\n");
  EXPECT_EQ(bash_offers("gpushare --ver"), "--version\n");
  EXPECT_EQ(bash_offers("gpushare --socket LICEN"), "LICENSE LICENSE-GPL-2.0\n");
}

}  // namespace
}  // namespace gpushare
