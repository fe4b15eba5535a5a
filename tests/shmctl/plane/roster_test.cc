// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/roster.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

RosterTenant tenant(const char* name, uint32_t weight = 100) {
  RosterTenant record;
  std::strcpy(record.name, name);
  record.flags = kRosterKept;
  record.set = 1;
  record.weight = weight;
  return record;
}

RosterProcess process(pid_t pid, uint32_t in = 1, uint32_t flags = kRosterAttached) {
  return {.pid = pid, .tenant = in, .start_ticks = 7, .flags = flags};
}

std::vector<std::pair<uint32_t, std::string>> tenants_of(const Roster& roster) {
  std::vector<std::pair<uint32_t, std::string>> all;
  roster.for_each_tenant(
      [&](uint32_t slot, const RosterTenant& each) { all.emplace_back(slot, each.name); });
  return all;
}

std::vector<RosterProcess> processes_of(const Roster& roster) {
  std::vector<RosterProcess> all;
  roster.for_each_process([&](const RosterProcess& each) { all.push_back(each); });
  return all;
}

class RosterTest : public ::testing::Test {
 protected:
  TempPlane plane_;
  Roster roster_{plane_.region()};
};

TEST_F(RosterTest, WhatWasPutIsThereForTheNext) {
  roster_.put_tenant(3, tenant("lab", 300));
  roster_.put_tenant(4, tenant("gone"));
  roster_.erase_tenant(4);
  ASSERT_TRUE(roster_.put_process(process(10, 3)));
  ASSERT_TRUE(roster_.put_process(process(11, 3)));
  ASSERT_TRUE(roster_.put_process(process(10, 3, kRosterAttached | kRosterFrozen)));
  roster_.erase_process({11, 7});
  roster_.erase_process({12, 7});  // it is not there
  roster_.set_tenants_in_sysfs(true);

  Roster next(plane_.region());
  EXPECT_EQ(tenants_of(next), (std::vector<std::pair<uint32_t, std::string>>{{3, "lab"}}));
  EXPECT_EQ(processes_of(next), std::vector{process(10, 3, kRosterAttached | kRosterFrozen)});
  EXPECT_TRUE(next.are_tenants_in_sysfs());
  EXPECT_FALSE(next.are_tenants_in_sysfs(7)) << "another module has been loaded";
  next.set_tenants_in_sysfs(true, 7);
  EXPECT_TRUE(next.are_tenants_in_sysfs(7));
  ASSERT_TRUE(next.put_process(process(10, 3, 0)));
  EXPECT_TRUE(processes_of(Roster(plane_.region())).empty()) << "one without flags is erased";
}

TEST_F(RosterTest, WhatIsThereAlreadyIsNotWritten) {
  roster_.put_tenant(1, tenant("lab"));
  ASSERT_TRUE(roster_.put_process(process(10)));
  Roster next(plane_.region());
  next.put_tenant(1, tenant("lab"));
  ASSERT_TRUE(next.put_process(process(10)));
  EXPECT_EQ(plane_.region().roster_tenants[1].version, 1u);
  EXPECT_EQ(plane_.region().roster_processes[0].version, 1u);
}

TEST_F(RosterTest, AFullTableIsAnErrorUntilAProcessEnds) {
  for (uint32_t i = 0; i < kMaxRosterProcesses; ++i)
    ASSERT_TRUE(roster_.put_process(process(static_cast<pid_t>(100 + i))));
  const auto refused = roster_.put_process(process(99));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::no_space_on_device);
  EXPECT_NE(refused.error().message().find("16384"), std::string::npos);
  EXPECT_TRUE(roster_.put_process(process(100, 2))) << "a known one changes";
  roster_.erase_process({5000, 7});
  EXPECT_TRUE(roster_.put_process(process(99)));
  EXPECT_EQ(processes_of(Roster(plane_.region())).size(), kMaxRosterProcesses);
}

TEST_F(RosterTest, ScopesAreThereForTheNext) {
  const auto scopes_of = [](const Roster& roster) {
    std::map<std::string, uint32_t> all;
    roster.for_each_scope([&](const std::string& cgroup, uint32_t in) { all[cgroup] = in; });
    return all;
  };
  ASSERT_TRUE(roster_.put_scope("/a.scope", 3));
  ASSERT_TRUE(roster_.put_scope("/b.scope", 4));
  ASSERT_TRUE(roster_.put_scope("/b.scope", 5));
  roster_.erase_scope("/a.scope");
  roster_.erase_scope("/a.scope");
  EXPECT_EQ(scopes_of(Roster(plane_.region())), (std::map<std::string, uint32_t>{{"/b.scope", 5}}));
  EXPECT_EQ(roster_.put_scope(std::string(232, 'x'), 1).error().code, std::errc::filename_too_long);
  const std::string longest(231, 'x');
  ASSERT_TRUE(roster_.put_scope(longest, 1));
  for (uint32_t i = 2; i < kMaxRosterScopes; ++i)
    ASSERT_TRUE(roster_.put_scope("/" + std::to_string(i), 1));
  EXPECT_EQ(roster_.put_scope("/late", 1).error().code, std::errc::no_space_on_device);
  EXPECT_TRUE(roster_.put_scope("/2", 2)) << "a known one changes";
  const auto all = scopes_of(Roster(plane_.region()));
  EXPECT_EQ(all.size(), kMaxRosterScopes);
  EXPECT_TRUE(all.contains(longest));
}

TEST_F(RosterTest, OfTwoEntriesOfAProcessOneIsTaken) {
  write_record(plane_.region().roster_processes[5], process(10, 1));
  write_record(plane_.region().roster_processes[9], process(10, 2));
  EXPECT_EQ(processes_of(Roster(plane_.region())), std::vector{process(10, 2)});
}

// Between two steps the writer stands still, which looks as if it had died there.
TEST_F(RosterTest, ADeathAtAnyInstructionLeavesAnEntryAsBeforeOrAsAfter) {
  roster_.put_tenant(1, tenant("before", 10));
  ASSERT_TRUE(roster_.put_process(process(10, 1)));
  SteppedChild writer(Stride::kInstruction, [&] {
    roster_.put_tenant(1, tenant("after", 20));
    (void)roster_.put_process(process(10, 2));
    (void)roster_.put_process(process(20, 2));
    roster_.erase_process({10, 7});
  });
  if (!writer.is_traced()) GTEST_SKIP() << "this build or machine cannot step single instructions";
  const Region& region = plane_.region();
  while (writer.step()) {
    const RosterTenant lab = *read_record(region.roster_tenants[1]);
    ASSERT_TRUE(lab == tenant("before", 10) || lab == tenant("after", 20)) << lab.name;
    const RosterProcess first = *read_record(region.roster_processes[0]);
    ASSERT_TRUE(first == process(10, 1) || first == process(10, 2) || first == RosterProcess{});
    const RosterProcess second = *read_record(region.roster_processes[1]);
    ASSERT_TRUE(second == RosterProcess{} || second == process(20, 2));
  }
  const Roster next(plane_.region());
  EXPECT_EQ(processes_of(next), std::vector{process(20, 2)});
}

}  // namespace
}  // namespace gpushare
