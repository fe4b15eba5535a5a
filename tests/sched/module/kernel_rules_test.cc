// SPDX-License-Identifier: Apache-2.0
#include "sched/module/kernel_rules.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

std::optional<uid_t> uid_of(const std::string& user) {
  return user == "alice" ? std::optional<uid_t>(1000) : std::nullopt;
}
Rule cgroup(std::string tenant, std::string glob) { return {std::move(tenant), glob, {}, {}}; }
Rule user(std::string tenant, std::string name) { return {std::move(tenant), {}, name, {}}; }
Rule command(std::string tenant, std::string glob) { return {std::move(tenant), {}, {}, glob}; }

TEST(SplitRules, TheKernelGetsThoseFromTheFrontThatKeepTheOrder) {
  struct Row {
    const char* description;
    std::vector<Rule> rules;
    std::size_t of_kernel;
  };
  const Row rows[] = {
      {"cgroups, then users", {cgroup("a", "/a"), cgroup("b", "/b"), user("c", "alice")}, 3},
      {"the kernel tries cgroups first", {user("a", "alice"), cgroup("b", "/b")}, 1},
      {"nothing behind a command", {command("a", "x"), cgroup("b", "/b")}, 0},
      {"one of a kind for each tenant", {cgroup("a", "/a"), cgroup("a", "/b")}, 1},
      {"one of each kind", {cgroup("a", "/a"), user("a", "alice")}, 2},
      {"no such user", {user("a", "bob")}, 0},
      {"a glob that the kernel does not take", {cgroup("a", "user.slice/*")}, 0},
      {"a glob that is too long", {cgroup("a", "/" + std::string(255, 'x'))}, 0},
      {"two conditions in one", {Rule{"a", "/a", "alice", {}}}, 0},
      {"a container", {Rule{"a", {}, {}, {}, "web", {}}, cgroup("b", "/b")}, 0},
      {"a cgroup and a container", {Rule{"a", "/a", {}, {}, "web", {}}}, 0},
      {"a user and a label", {Rule{"a", {}, "alice", {}, {}, "team=x"}}, 0},
  };
  for (const Row& row : rows) {
    const SplitRules split = split_rules(row.rules, uid_of);
    EXPECT_EQ(split.of_kernel.size(), row.of_kernel) << row.description;
    EXPECT_EQ(split.of_agent.size(), row.rules.size() - row.of_kernel) << row.description;
  }
  const SplitRules both = split_rules(std::vector{cgroup("a", "/a"), user("b", "alice")}, uid_of);
  EXPECT_EQ(both.of_kernel[0], (KernelRule{"a", "/a", std::nullopt}));
  EXPECT_EQ(both.of_kernel[1], (KernelRule{"b", "", 1000}));
}

TEST(RulesInForce, AreTheKernelsInItsOrderThenTheAgents) {
  const std::vector<Rule> file{cgroup("a", "/a"), user("b", "alice"), command("c", "x")};
  const std::vector<KernelRule> given = split_rules(file, uid_of).of_kernel;
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(rules_in_force(file, given, given), file);
  EXPECT_EQ(rules_in_force(file, given, {}), std::vector{file[2]}) << "taken away in sysfs";
  const std::vector<KernelRule> shown{
      {"a", "/a", {}}, {"b", "", 1000}, {"z", "/z", {}}, {"z", "", 7}};
  EXPECT_EQ(rules_in_force(file, given, shown),
            (std::vector{file[0], cgroup("z", "/z"), file[1], user("z", "7"), file[2]}));
  EXPECT_EQ(rules_in_force(file, given, std::vector<KernelRule>{{"a", "/other", {}}}),
            (std::vector{cgroup("a", "/other"), file[2]}));
}

TEST(SplitRules, KnowsUsersByNameAndNumber) {
  EXPECT_EQ(system_uid_of("root"), uid_t{0});
  EXPECT_EQ(system_uid_of("1234"), uid_t{1234});
  EXPECT_EQ(system_uid_of("no such user"), std::nullopt);
}

}  // namespace
}  // namespace gpushare
