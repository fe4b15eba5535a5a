// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/rules.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

struct GlobRow {
  const char* pattern;
  const char* text;
  bool matches;
};

class Glob : public testing::TestWithParam<GlobRow> {};

TEST_P(Glob, Matches) {
  const auto& [pattern, text, matches] = GetParam();
  EXPECT_EQ(glob_matches(pattern, text), matches) << pattern << " on " << text;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Glob,
    testing::Values(GlobRow{"", "", true}, GlobRow{"", "a", false}, GlobRow{"*", "", true},
                    GlobRow{"*", "a/b", true}, GlobRow{"?", "", false}, GlobRow{"?", "a", true},
                    GlobRow{"a", "A", false}, GlobRow{"python3*", "python3.11", true},
                    GlobRow{"python3", "python3.11", false},
                    GlobRow{"/slurm/*/step_0", "/slurm/uid_1/job_2/step_0", true},
                    GlobRow{"/slurm/*/step_0", "/slurm/uid_1/job_2/step_0/x", false},
                    GlobRow{"*.service", "/system.slice/a.service", true},
                    GlobRow{"a*b*c", "aXbXbXc", true}, GlobRow{"a*b*c", "aXcXb", false},
                    GlobRow{"**a**", "bab", true}, GlobRow{"a?c", "abc", true},
                    GlobRow{"[ab]", "a", false}, GlobRow{"[ab]", "[ab]", true},
                    GlobRow{"a*", "*a", false}, GlobRow{"*a", "*a", true}));

TEST(Glob, TakesQuadraticTimeAtWorst) {
  const std::string text(4'000, 'a');
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(glob_matches(pattern + "b", text));
  EXPECT_TRUE(glob_matches(pattern, text));
}

ProcessIdentity identity() {
  return {
      .id = {100, 1},
      .ancestors = {},
      .cgroup_path = "/user.slice/user-1000.slice",
      .uid = 1000,
      .user = "alice",
      .owners = {{.uid = 1001, .name = ""}, {.uid = 1002, .name = "carol"}},
      .command = "python3",
      .command_line = "python3 train.py --epochs 3",
      .container = std::make_shared<Container>(Container{
          .names = {"trainer", "k8s_trainer_0"}, .labels = {{"team", "vision=2"}, {"tier", ""}}})};
}

struct RuleRow {
  const char* description;
  Rule rule;
  bool matches;
};

class RuleOnIdentity : public testing::TestWithParam<RuleRow> {};

TEST_P(RuleOnIdentity, Matches) {
  EXPECT_EQ(rule_matches(GetParam().rule, identity()), GetParam().matches)
      << GetParam().description;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RuleOnIdentity,
    testing::Values(
        RuleRow{"cgroup below", {"t", "/user.slice/*", {}, {}}, true},
        RuleRow{"other cgroup", {"t", "/system.slice/*", {}, {}}, false},
        RuleRow{"user by name", {"t", {}, "alice", {}}, true},
        RuleRow{"user by uid", {"t", {}, "1000", {}}, true},
        RuleRow{"who made its namespace", {"t", {}, "carol", {}}, true},
        RuleRow{"who made its namespace, by uid", {"t", {}, "1002", {}}, true},
        RuleRow{"user is no glob", {"t", {}, "ali*", {}}, false},
        RuleRow{"other user", {"t", {}, "bob", {}}, false},
        RuleRow{"command", {"t", {}, {}, "python*"}, true},
        RuleRow{"command line", {"t", {}, {}, "*train.py*"}, true},
        RuleRow{"part of the command line", {"t", {}, {}, "train.py"}, false},
        RuleRow{"all conditions hold", {"t", "/user.slice/*", "alice", "python*"}, true},
        RuleRow{"one condition does not", {"t", "/user.slice/*", "bob", "python*"}, false},
        RuleRow{"container", {"t", {}, {}, {}, "train*", {}}, true},
        RuleRow{"another of its names", {"t", {}, {}, {}, "k8s_*", {}}, true},
        RuleRow{"other container", {"t", {}, {}, {}, "train", {}}, false},
        RuleRow{"label", {"t", {}, {}, {}, {}, "team=vision*"}, true},
        RuleRow{"label with = in it", {"t", {}, {}, {}, {}, "team=vision=2"}, true},
        RuleRow{"empty label", {"t", {}, {}, {}, {}, "tier="}, true},
        RuleRow{"part of a label", {"t", {}, {}, {}, {}, "team=vision"}, false},
        RuleRow{"a label's key is no glob", {"t", {}, {}, {}, {}, "te*=*"}, false},
        RuleRow{"no such label", {"t", {}, {}, {}, {}, "owner=*"}, false},
        RuleRow{"no label in the rule", {"t", {}, {}, {}, {}, "team"}, false},
        RuleRow{"container and user", {"t", {}, "alice", {}, "trainer", "team=*"}, true},
        RuleRow{"container and other user", {"t", {}, "bob", {}, "trainer", {}}, false},
        RuleRow{"no condition at all", {"t", {}, {}, {}}, false}));

TEST(Rule, OnAnUnknownProcessDoesNotMatchByAccident) {
  EXPECT_FALSE(rule_matches({"t", "/user.slice/*", {}, {}}, ProcessIdentity{}));
  EXPECT_FALSE(rule_matches({"t", {}, "alice", {}}, ProcessIdentity{}));
  EXPECT_FALSE(rule_matches({"t", {}, {}, "python*"}, ProcessIdentity{}));
  EXPECT_FALSE(rule_matches({"t", {}, {}, {}, "*", {}}, ProcessIdentity{})) << "in no container";
  EXPECT_FALSE(rule_matches({"t", {}, {}, {}, {}, "team=*"}, ProcessIdentity{}));
}

}  // namespace
}  // namespace gpushare
