// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/rule_warnings.h"

#include <gtest/gtest.h>

#include "sched/policies/policies.h"
#include "sched/tenants/config.h"

namespace gpushare {
namespace {

bool is_alice(const std::string& name) { return name == "alice"; }

TEST(RuleWarnings, NameWhatCanNeverHold) {
  struct Row {
    Rule rule;
    const char* says;  // nullptr: nothing
  };
  const Row table[] = {
      {{"a", "/system.slice/*", {}, {}}, nullptr},
      {{"a", "*", {}, {}}, nullptr},
      {{"a", "system.slice/*", {}, {}}, "as in \"/system.slice/*\""},
      {{"a", "", {}, {}}, "begins with /"},
      {{"a", "/sys/fs/cgroup/ml.slice/*", {}, {}}, "at the cgroups' root"},
      {{"a", "/", {}, {}}, nullptr},
      {{"a", "/user.slice/", {}, {}}, "ends with no /, as in \"/user.slice\" or \"/user.slice/*\""},
      {{"a", "//user.slice", {}, {}}, "has no // in it"},
      {{"a", {}, "alice", {}}, nullptr},
      {{"a", {}, "1002", {}}, nullptr},
      {{"a", {}, "alcie", {}}, "no such user"},
      {{"a", {}, {}, ""}, "every process has a name"},
      {{"a", {}, {}, "python*"}, nullptr},
      {{"a", {}, {}, {}, "web-*", "team=*"}, nullptr},
      {{"a", {}, {}, {}, "/web", {}}, "the name of a container has no / in it"},
  };
  for (const Row& row : table) {
    const std::vector<std::string> lines = rule_warnings(std::span(&row.rule, 1), is_alice);
    ASSERT_EQ(lines.size(), row.says == nullptr ? 0u : 1u);
    if (row.says == nullptr) continue;
    EXPECT_TRUE(lines[0].starts_with("tenant.a.match: this rule never holds: ")) << lines[0];
    EXPECT_TRUE(lines[0].contains(row.says)) << lines[0];
  }
}

// systemd lets each user make groups of any name in its own slice.
TEST(RuleWarnings, NameAPathThatAnybodyCanMake) {
  const Rule anybodys{"a", "*slurm*/job_*", {}, "python*"};
  EXPECT_EQ(
      rule_warnings(std::span(&anybodys, 1), is_alice),
      std::vector<std::string>{
          "tenant.a.match: cgroup \"*slurm*/job_*\": any user can make a cgroup that matches, "
          "in a slice of its own; begin it with the folder that root makes, as in "
          "\"/system.slice/...\""});
  const Rule hers{"a", "*/job_*", "alice", {}};
  EXPECT_TRUE(rule_warnings(std::span(&hers, 1), is_alice).empty());
  const Rule roots{"a", "*/job_*", {}, {}, "web", {}};
  EXPECT_TRUE(rule_warnings(std::span(&roots, 1), is_alice).empty());
}

TEST(RuleWarnings, ARuleBehindItsTwinNeverHolds) {
  const std::vector<Rule> rules = {
      {"a", {}, "alice", {}}, {"b", "/x", {}, {}}, {"c", {}, "alice", {}}};
  EXPECT_EQ(
      rule_warnings(rules, is_alice),
      std::vector<std::string>{
          "tenant.c.match: this rule never holds: the same rule of tenant 'a' comes before it"});
}

TEST(RuleWarnings, ARuleBehindAWiderOneNeverHolds) {
  const std::vector<Rule> rules = {{"a", {}, "alice", {}},     {"b", "/x", "alice", "python*"},
                                   {"b", "/x", {}, "python*"}, {"c", {}, "alice", {}},
                                   {"d", {}, {}, "*"},         {"e", "/y", {}, {}}};
  EXPECT_EQ(
      rule_warnings(rules, is_alice),
      (std::vector<std::string>{"tenant.b.match: this rule never holds: a wider rule of tenant 'a' "
                                "comes before it",
                                "tenant.c.match: this rule never holds: the same rule of tenant "
                                "'a' comes before it",
                                "tenant.e.match: this rule never holds: a wider rule of tenant 'd' "
                                "comes before it"}));
}

// A rule by container holds for nothing that is in none.
TEST(RuleWarnings, ARuleByContainerIsNoWiderThanOneWithoutIt) {
  const std::vector<Rule> rules = {{"a", {}, {}, {}, "*", {}},
                                   {"b", {}, "alice", {}},
                                   {"c", {}, {}, {}, {}, "team=x"},
                                   {"d", {}, "alice", {}, "web", {}},
                                   {"e", {}, {}, "x", {}, "team=x"}};
  EXPECT_EQ(rule_warnings(rules, is_alice),
            (std::vector<std::string>{"tenant.d.match: this rule never holds: a wider rule of "
                                      "tenant 'a' comes before it",
                                      "tenant.e.match: this rule never holds: a wider rule of "
                                      "tenant 'c' comes before it"}));
}

// The paths that Slurm, the kubelet and systemd make, with cgroups of version 2 and 1.
TEST(RuleWarnings, TheExamplesRulesHoldForThePathsThatThereAre) {
  const std::vector<PolicyEntry> policies = all_policies();
  const auto config = load_config("sched/gpushare.toml.example", policies);
  ASSERT_TRUE(config) << "run the tests in the source folder";
  EXPECT_EQ(rule_warnings(config->rules, is_alice), std::vector<std::string>());
  const auto tenant_of = [&](const char* path, const char* command) -> std::string {
    ProcessIdentity process;
    process.cgroup_path = path;
    process.command = command;
    process.uid = 5;
    for (const Rule& rule : config->rules)
      if (rule_matches(rule, process)) return rule.tenant;
    return "default";
  };
  EXPECT_EQ(tenant_of("/system.slice/slurmstepd.scope/job_4/step_0/user/task_0", "python3"),
            "research");
  EXPECT_EQ(tenant_of("/slurm/uid_1000/job_4/step_0", "python3"), "research");
  EXPECT_EQ(tenant_of("/user.slice/user-5.slice/user@5.service/slurm/uid_5/job_4", "python3"),
            "default");
  EXPECT_EQ(tenant_of("/system.slice/slurmstepd.scope/job_4/step_0", "bash"), "default");
  EXPECT_EQ(tenant_of("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/"
                      "cri-containerd-1.scope",
                      "x"),
            "batch");
  EXPECT_EQ(tenant_of("/kubepods/besteffort/pod1/1", "x"), "batch");
  EXPECT_EQ(tenant_of("/kubepods.slice/kubepods-burstable.slice/x", "x"), "default");
  EXPECT_EQ(tenant_of("/system.slice/triton-1.service", "x"), "inference");
}

}  // namespace
}  // namespace gpushare
