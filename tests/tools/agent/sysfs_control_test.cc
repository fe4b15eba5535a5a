// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/sysfs_control.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/shmctl/settings/plain_sysfs.h"
#include "tests/tools/support/fake_agent.h"
#include "tests/tools/support/run_tool.h"

namespace gpushare {
namespace {

using test::PlainSysfs;

Request set_of(std::string tenant, std::string key, std::string value, bool create = false) {
  return {.op = "set", .tenant = std::move(tenant), .settings = {{key, value}}, .create = create};
}

TEST(SysfsControl, DoesWhatTheAgentWould) {
  PlainSysfs tree;
  ASSERT_TRUE(change_in_sysfs(tree, set_of("a", "max", "30%", true)).value());
  EXPECT_EQ(tree.get("a", "max"), "30000 100000");
  ASSERT_TRUE(change_in_sysfs(tree, {.op = "attach", .pid = 12, .tenant = "a"}).value());
  EXPECT_EQ(tree.attached.back().first, 12);
  ASSERT_TRUE(change_in_sysfs(tree, {.op = "remove", .tenant = "a"}).value());
  EXPECT_FALSE(tree.has("a"));
}

TEST(SysfsControl, WrongRequestsAreAnsweredInTheAgentsWords) {
  PlainSysfs tree;
  tree.dead = 13;
  struct Row {
    Request request;
    const char* says;
  };
  const Row rows[] = {
      {set_of("default", "weight", "0"), "weight: '0' is not allowed; allowed: 1 to 10000"},
      {set_of("default", "weigth", "5"), "did you mean 'weight'?"},
      {set_of("a", "weight", "5"), "there is no tenant 'a'"},
      {set_of("-a", "weight", "5", true), "'-a' is not allowed"},
      {{.op = "remove", .tenant = "a"}, "there is no tenant 'a'"},
      {{.op = "attach", .pid = 12, .tenant = "a"}, "there is no tenant 'a'"},
      {{.op = "attach", .pid = 13, .tenant = "default"}, "there is no process 13"},
  };
  for (const Row& row : rows) {
    const auto done = change_in_sysfs(tree, row.request);
    ASSERT_TRUE(done && !*done) << row.says;
    EXPECT_EQ(done->error().code, std::errc::invalid_argument) << row.says;
    EXPECT_NE(done->error().message().find(row.says), std::string::npos) << done->error().message();
  }
  const auto kept = change_in_sysfs(tree, {.op = "remove", .tenant = "default"});
  ASSERT_TRUE(kept && !*kept);
  EXPECT_NE(kept->error().message().find("cannot be removed"), std::string::npos);
  EXPECT_EQ(tree.tenants().value(), std::vector<std::string>{"default"});
}

// Another command makes the tenant between our look and our `create`, and its weight cannot be
// written.
class MadeMeanwhile final : public PlainSysfs {
 public:
  Result<bool> create(std::string_view tenant) override {
    if (auto others = PlainSysfs::create(tenant); !others) return others;
    const std::string weight = root() + "/tenants/" + std::string(tenant) + "/weight";
    std::filesystem::remove(weight);
    std::filesystem::create_symlink("/dev/full", weight);
    return PlainSysfs::create(tenant);
  }
};

TEST(SysfsControl, ATenantThatAnotherHasMadeMeanwhileStays) {
  MadeMeanwhile tree;
  const auto done = change_in_sysfs(tree, set_of("a", "weight", "5", true));
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done);
  EXPECT_TRUE(tree.has("a"));
}

TEST(SysfsControl, WithoutTheModuleTheAgentIsAsked) {
  SysfsTree none("/nonexistent");
  EXPECT_FALSE(change_in_sysfs(none, set_of("a", "weight", "5")));
  PlainSysfs tree;
  EXPECT_FALSE(change_in_sysfs(tree, {.op = "freeze", .tenant = "default"}));
}

TEST(SysfsControl, WhatIsNotTheCallersToWriteTheAgentIsAskedFor) {
  PlainSysfs tree;
  for (const char* file : {"/create", "/tenants/default/weight", "/tenants/default/procs"})
    ::chmod((tree.root() + file).c_str(), 0444);
  if (::geteuid() == 0) return;  // may write everything
  EXPECT_FALSE(change_in_sysfs(tree, set_of("default", "weight", "5")));
  EXPECT_FALSE(change_in_sysfs(tree, set_of("a", "weight", "5", true)));
  EXPECT_FALSE(change_in_sysfs(tree, {.op = "remove", .tenant = "default"}));
  EXPECT_FALSE(change_in_sysfs(tree, {.op = "attach", .pid = 12, .tenant = "default"}));
  EXPECT_TRUE(change_in_sysfs(tree, set_of("default", "max", "5%"))) << "that one is his";
}

// --- the program --------------------------------------------------------------------------------

TEST(GpushareSet, WritesSysfsAndNeedsNoAgent) {
  const PlainSysfs tree;
  const ToolResult done = run_tool("gpushare", {"set", "default", "weight=300", "max=30%"},
                                   {"GPUSHARE_SYSFS=" + tree.root()});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out + done.err, "");
  EXPECT_EQ(tree.get("default", "weight"), "300");
  EXPECT_EQ(tree.get("default", "max"), "30000 100000");
  const ToolResult bad =
      run_tool("gpushare", {"set", "default", "weight=0"}, {"GPUSHARE_SYSFS=" + tree.root()});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("weight: '0' is not allowed; allowed: 1 to 10000"), std::string::npos)
      << bad.err;
}

TEST(GpushareSet, AsksTheAgentWhereThereIsNoModule) {
  FakeAgent agent([](const std::string&) { return std::vector<std::string>{R"({"ok":true})"}; });
  const ToolResult done =
      run_tool("gpushare", {"set", "default", "weight=300"},
               {"GPUSHARE_SYSFS=/nonexistent", "GPUSHARE_SOCKET=" + agent.socket()});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(agent.requests().size(), 1u);
}

}  // namespace
}  // namespace gpushare
