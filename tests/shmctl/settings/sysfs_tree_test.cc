// SPDX-License-Identifier: Apache-2.0
#include "shmctl/settings/sysfs_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using test::PlainSysfs;

TEST(SysfsTree, IsThereWhenTheModuleIs) {
  PlainSysfs tree;
  EXPECT_TRUE(tree.is_there());
  EXPECT_FALSE(SysfsTree("/nonexistent").is_there());
  EXPECT_EQ(SysfsTree("/nonexistent").generation(), std::nullopt);
  EXPECT_FALSE(SysfsTree("/nonexistent").tenants());
}

TEST(SysfsTree, ReadsWhatTheKernelShows) {
  PlainSysfs tree;
  ASSERT_TRUE(tree.create("a"));
  EXPECT_EQ(tree.read("a").value(), SysfsTenant{}) << "a new tenant has the defaults";
  tree.put("tenants/a/weight", "300\n");
  tree.put("tenants/a/max", "30000 100000\n");
  tree.put("tenants/a/priority", "idle\n");
  tree.put("tenants/a/memory_max", "8589934592\n");
  tree.put("tenants/a/sm_percent", "50\n");
  tree.put("tenants/a/slo_us", "2000\n");
  tree.put("tenants/a/match_cgroup", "/user.slice/*\n");
  tree.put("tenants/a/match_uid", "1000\n");
  const SysfsTenant a = tree.read("a").value();
  EXPECT_EQ(a.settings.weight, 300u);
  EXPECT_EQ(a.settings.cap, (Cap{Micros(30'000), Micros(100'000)}));
  EXPECT_EQ(a.settings.priority, Priority::kIdle);
  EXPECT_EQ(a.settings.memory_max, 8ull << 30);
  EXPECT_EQ(a.settings.sm_percent, 50u);
  EXPECT_EQ(a.settings.slo, Micros(2000));
  EXPECT_EQ(a.match_cgroup, "/user.slice/*");
  EXPECT_EQ(a.match_uid, uid_t{1000});
}

TEST(SysfsTree, ListsTenantsByName) {
  PlainSysfs tree;
  for (const char* name : {"b", "a", "run-12"}) ASSERT_TRUE(tree.create(name));
  EXPECT_EQ(tree.tenants().value(), (std::vector<std::string>{"a", "b", "default", "run-12"}));
}

TEST(SysfsTree, WritesInTheKernelsGrammar) {
  PlainSysfs tree;
  const std::vector<Setting> settings = {{"weight", "300"},    {"max", "12.5%"},
                                         {"priority", "high"}, {"memory_max", "8G"},
                                         {"sm_percent", "50"}, {"slo_us", "2000"}};
  ASSERT_TRUE(tree.write("default", settings));
  EXPECT_EQ(tree.get("default", "weight"), "300");
  EXPECT_EQ(tree.get("default", "max"), "12500 100000");
  EXPECT_EQ(tree.get("default", "priority"), "high");
  EXPECT_EQ(tree.get("default", "memory_max"), "8G");
  EXPECT_EQ(tree.get("default", "sm_percent"), "50");
  TenantSettings wanted;
  ASSERT_TRUE(apply_settings(wanted, settings));
  EXPECT_EQ(tree.read("default").value().settings, wanted);
  ASSERT_TRUE(tree.write("default", std::vector<Setting>{{"max", "max"}}));
  EXPECT_EQ(tree.get("default", "max"), "max");
}

TEST(SysfsTree, OneBadValueWritesNothing) {
  PlainSysfs tree;
  const auto done =
      tree.write("default", std::vector<Setting>{{"weight", "300"}, {"sm_percent", "101"}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, std::errc::invalid_argument);
  EXPECT_EQ(done.error().detail, "sm_percent: '101' is not allowed; allowed: max, or 1 to 100");
  EXPECT_EQ(tree.get("default", "weight"), "100");
}

TEST(SysfsTree, WhatIsNotThereIsNamed) {
  PlainSysfs tree;
  const std::vector<Setting> weight = {{"weight", "300"}};
  for (const auto& error : {tree.write("nobody", weight), tree.attach(::getpid(), "nobody"),
                            tree.remove("nobody"), tree.write("../default", weight)}) {
    ASSERT_FALSE(error);
    EXPECT_EQ(error.error().code, std::errc::no_such_file_or_directory);
    EXPECT_NE(error.error().detail.find("there is no tenant"), std::string::npos);
  }
  EXPECT_EQ(tree.read("nobody").error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(tree.remove("default").error().code, std::errc::operation_not_permitted);
}

TEST(SysfsTree, NamesThatAreNotAllowedNeverReachTheKernel) {
  PlainSysfs tree;
  for (const char* name : {"", ".", "..", "-a", "a//b", "a\nb"}) {
    const auto made = tree.create(name);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().code, std::errc::invalid_argument) << name;
  }
  EXPECT_EQ(tree.get("create"), "default\n") << "only the fixture's own was written";
}

TEST(SysfsTree, ListsTheWholeTree) {
  PlainSysfs tree;
  for (const char* name : {"team", "team/b", "team/b/deep", "team/a", "team-2"})
    ASSERT_TRUE(tree.create(name)) << name;
  EXPECT_EQ(tree.tenants().value(), (std::vector<std::string>{"default", "team", "team-2", "team/a",
                                                              "team/b", "team/b/deep"}));
  tree.put("tenants/team/procs", "12\n");
  tree.put("tenants/team/a/procs", "345\n");
  EXPECT_EQ(tree.procs("team").value(), (std::vector<pid_t>{12})) << "and not those below";
  tree.put("tenants/team/b/weight", "300\n");
  EXPECT_EQ(tree.read("team/b")->settings.weight, 300u);
}

TEST(SysfsTree, ReadsPids) {
  PlainSysfs tree;
  tree.put("tenants/default/procs", "12\n345\n\nnonsense\n-1\n6");
  EXPECT_EQ(tree.procs("default").value(), (std::vector<pid_t>{12, 345, 6}));
}

TEST(SysfsTree, ALaterModulesValueCountsAsTheDefault) {
  PlainSysfs tree;
  tree.put("tenants/default/priority", "realtime\n");
  EXPECT_EQ(tree.read("default").value().settings.priority, Priority::kNormal);
}

TEST(SysfsTree, KnowsWhatTheCallerMayWrite) {
  PlainSysfs tree;
  const std::vector<Setting> weight = {{"weight", "300"}};
  EXPECT_TRUE(tree.may_write("default", weight));
  EXPECT_TRUE(tree.may_write_procs("default"));
  EXPECT_TRUE(tree.may_create());
  EXPECT_FALSE(tree.may_write("nobody", weight));
  if (::geteuid() == 0) return;  // may write everything
  ::chmod((tree.root() + "/tenants/default/weight").c_str(), 0444);
  EXPECT_FALSE(tree.may_write("default", weight));
  EXPECT_EQ(tree.write("default", weight).error().code, std::errc::permission_denied);
}

TEST(SysfsTree, RulesAreWrittenAndTakenAway) {
  PlainSysfs tree;
  ASSERT_TRUE(tree.write_match_cgroup("default", "/user.slice/*"));
  ASSERT_TRUE(tree.write_match_uid("default", 1000));
  EXPECT_EQ(tree.get("default", "match_cgroup"), "/user.slice/*");
  EXPECT_EQ(tree.get("default", "match_uid"), "1000");
  ASSERT_TRUE(tree.write_match_uid("default", std::nullopt));
  EXPECT_EQ(tree.read("default").value().match_uid, std::nullopt);
}

}  // namespace
}  // namespace gpushare
