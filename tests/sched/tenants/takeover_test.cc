// SPDX-License-Identifier: Apache-2.0
// What was set at run time outlives the agent: an agent works on a region, ends in some way, and
// another begins there.
#include "sched/tenants/takeover.h"

#include <gtest/gtest.h>

#include "sched/tenants/tenant_control.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

ProcessId id(pid_t pid) { return {pid, static_cast<uint64_t>(1000 + pid)}; }

class TakeoverTest : public ::testing::Test {
 protected:
  TakeoverTest() { next({}); }
  // The agent is gone, and the next one begins with this file.
  void next(const TenantsConfig& config) {
    roster_ = std::make_unique<Roster>(*region_);
    tenants_ = std::make_unique<Tenants>(roster_.get());
    end_the_dead(*tenants_, processes_);
    EXPECT_TRUE(tenants_->start(config));
  }
  void set(std::string_view name, std::vector<Setting> settings) {
    ASSERT_TRUE(tenants_->set(name, settings, /*create=*/true));
  }
  void attach(const std::string& cgroup, std::string_view name) {
    set(name, {});
    ASSERT_TRUE(tenants_->attach_scope(cgroup, name));
  }
  const Tenant& tenant(std::string_view name) { return *tenants_->at(*tenants_->find(name)); }
  std::string tenant_of(pid_t pid) { return tenants_->at(tenants_->tenant_of(id(pid)))->name; }
  void add_in(pid_t pid, const std::string& cgroup) {
    ProcessIdentity process;
    process.id = id(pid);
    process.cgroup_path = cgroup;
    tenants_->add_process(process);
  }
  std::size_t entries() {
    std::size_t n = 0;
    Roster(*region_).for_each_process([&](const RosterProcess&) { ++n; });
    return n;
  }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  test::FakeProcReader processes_;
  std::unique_ptr<Roster> roster_;
  std::unique_ptr<Tenants> tenants_;
};

TEST_F(TakeoverTest, SettingsMembershipsAndFreezesAreTakenOver) {
  set("batch", {{"weight", "50"},
                {"max", "20%"},
                {"priority", "idle"},
                {"memory_max", "3G"},
                {"sm_percent", "40"},
                {"slo_us", "500"}});
  const TenantSettings wanted = tenant("batch").settings;
  ASSERT_TRUE(tenants_->attach(id(10), "batch"));
  ASSERT_TRUE(tenants_->set_frozen("batch", true));
  ASSERT_TRUE(tenants_->set_frozen(id(11), true));
  for (int i = 0; i < 3; ++i) {  // none of them sees a program
    next({});
    EXPECT_EQ(tenant("batch").settings, wanted);
    EXPECT_TRUE(tenant("batch").is_frozen_by_user);
    EXPECT_EQ(tenant_of(10), "batch");
    EXPECT_TRUE(tenants_->is_frozen(id(11)));
    EXPECT_FALSE(tenants_->is_frozen(id(10)));
  }
}

// Its slot is what the plan and the control plane know a tenant by.
TEST_F(TakeoverTest, WhoGetsTheSlotOfARemovedTenantHasNothingOfIt) {
  set("frozen", {{"weight", "50"}, {"max", "20%"}});
  const uint32_t slot = *tenants_->find("frozen");
  ASSERT_TRUE(tenants_->attach(id(10), "frozen"));
  ASSERT_TRUE(tenants_->set_frozen("frozen", true));
  ASSERT_TRUE(tenants_->remove("frozen"));
  tenants_->reuse_slots();
  set("new", {});
  ASSERT_EQ(tenants_->find("new"), slot);
  for (int i = 0; i < 2; ++i) {  // under the next agent, too
    EXPECT_FALSE(tenant("new").is_frozen_by_user);
    EXPECT_EQ(tenant("new").settings, TenantSettings());
    EXPECT_EQ(tenant_of(10), "default");
    next({});
  }
}

TEST_F(TakeoverTest, WhichRunAProcessIsOfIsTakenOver) {
  ASSERT_EQ(tenants_->begin_run(id(10), Time{5s}), 10u);
  ProcessIdentity child;
  child.id = id(20);
  child.ancestors = {id(15), id(10)};
  tenants_->add_process(child);
  EXPECT_EQ(tenants_->run_of(id(20)).number, 10u);
  EXPECT_EQ(tenants_->run_of(id(20)).asked, Time{5s});
  EXPECT_EQ(tenant_of(20), "default") << "a run is no tenant";
  for (int i = 0; i < 3; ++i) {
    processes_.dead[10] = true;  // the child of one that has ended stays where it is
    next({});
    EXPECT_EQ(tenants_->run_of(id(20)).number, 10u);
    EXPECT_EQ(tenants_->run_of(id(20)).asked, Time{}) << "that is not kept";
  }
  tenants_->end_process(id(20));
  EXPECT_EQ(tenants_->run_of(id(20)).number, 0u);
}

TEST_F(TakeoverTest, TheNumberOfALivingRunIsNotGivenAgain) {
  ASSERT_EQ(tenants_->begin_run(id(10), Time{5s}), 10u);
  const uint32_t other = tenants_->begin_run({10, 77}, Time{6s}).value();
  EXPECT_NE(other, 10u);
  EXPECT_EQ(tenants_->run_of({10, 77}).number, other);
  EXPECT_EQ(tenants_->run_of(id(10)).number, 10u);
}

TEST_F(TakeoverTest, WhatAProcessInheritedIsItsOwn) {
  set("batch", {});
  ASSERT_TRUE(tenants_->attach(id(10), "batch"));
  ProcessIdentity child;
  child.id = id(20);
  child.ancestors = {id(10)};
  tenants_->add_process(child);
  processes_.dead[10] = true;
  next({});
  EXPECT_EQ(tenant_of(20), "batch");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(TakeoverTest, AProcessThatLeftItsGpusStays) {
  set("batch", {});
  ProcessIdentity program;
  program.id = id(20);
  tenants_->add_process(program);
  ASSERT_TRUE(tenants_->attach(id(20), "batch"));
  tenants_->leave_gpus(id(20));
  next({});
  EXPECT_EQ(tenant_of(20), "batch");
}

TEST_F(TakeoverTest, ATransientTenantGoesWithItsLastProcessWheneverThatEnds) {
  ASSERT_TRUE(tenants_->create_transient(id(10), std::vector<Setting>{{"weight", "300"}}));
  next({});
  EXPECT_TRUE(tenant("run-10").is_transient);
  EXPECT_EQ(tenant("run-10").settings.weight, 300u);
  processes_.dead[10] = true;
  next({});
  EXPECT_EQ(tenants_->slots().size(), 1u);
  EXPECT_EQ(entries(), 0u);
}

// What `gpushare run --scope` started is in no line of descent: its tenant hangs on the scope
// alone.
TEST_F(TakeoverTest, AScopeHoldsItsProcessesUnderTheNextAgentToo) {
  ASSERT_TRUE(tenants_->create_transient(id(10), std::vector<Setting>{{"max", "10%"}}));
  ASSERT_TRUE(tenants_->attach_scope("/a.scope", "run-10"));
  processes_.dead[10] = true;
  processes_.cgroups = {"/a.scope"};
  next({});
  add_in(20, "/a.scope/deeper");
  EXPECT_EQ(tenant_of(20), "run-10");
  tenants_->end_process(id(20));
  processes_.cgroups.clear();
  next({});
  EXPECT_FALSE(tenants_->find("run-10"));
  next({});
  EXPECT_TRUE(tenants_->scopes().empty());
}

// A pod's cgroup is attached before the pod has a process, and between two containers it has none.
TEST_F(TakeoverTest, AnotherCgroupStaysThoughItIsEmpty) {
  attach("/kubepods/pod1", "pod");
  next({});
  next({});
  add_in(20, "/kubepods/pod1/container");
  EXPECT_EQ(tenant_of(20), "pod");
  ASSERT_TRUE(tenants_->remove("pod"));
  next({});
  EXPECT_TRUE(tenants_->scopes().empty());
}

// Its processes are placed anew when neither the tenant nor its cgroups are there.
TEST_F(TakeoverTest, WhatIsInACgroupLeavesWithItsTenant) {
  attach("/job.scope", "job");
  add_in(20, "/job.scope");
  ASSERT_TRUE(tenant_of(20) == "job" && tenants_->remove("job"));
  EXPECT_EQ(tenants_->tenant_of(id(20)), kDefaultTenant);
}

TEST_F(TakeoverTest, AScopeGoesWithItsTenant) {
  attach("/a.scope", "batch");
  processes_.cgroups = {"/a.scope"};
  ASSERT_TRUE(tenants_->remove("batch"));
  set("later", {});  // may have its slot
  next({});
  EXPECT_TRUE(tenants_->scopes().empty());
}

TEST_F(TakeoverTest, WhoStartsProcessesWithoutEndDrivesOutItsOwn) {
  set("lab", {});
  set("bomb", {});
  set("other", {});
  const auto add_child = [&](pid_t pid, pid_t parent) {
    ProcessIdentity child;
    child.id = id(pid);
    child.ancestors = {id(parent)};
    tenants_->add_process(child);
  };
  ASSERT_TRUE(tenants_->attach(id(1), "lab"));
  ASSERT_TRUE(tenants_->attach(id(2), "bomb"));
  for (pid_t pid = 10; pid < 20; ++pid) add_child(pid, 1);
  const auto room = static_cast<pid_t>(kMaxRosterProcesses) - 12;
  for (pid_t pid = 100; pid < 100 + room; ++pid) add_child(pid, 2);
  EXPECT_TRUE(tenants_->driven_out().empty());
  add_child(100 + room, 2);
  add_child(30, 1);
  ASSERT_TRUE(tenants_->attach(id(3), "other")) << "there is room for who asks";
  ASSERT_TRUE(tenants_->set_frozen(id(4), true));
  EXPECT_EQ(tenants_->driven_out(), (std::map<uint32_t, uint64_t>{{*tenants_->find("bomb"), 4}}));
  EXPECT_EQ(tenant_of(100), "bomb") << "as long as this agent lives";

  next({});
  for (const pid_t pid : {1, 10, 19, 30}) EXPECT_EQ(tenant_of(pid), "lab") << pid;
  for (const pid_t pid : {100, 103})
    EXPECT_EQ(tenant_of(pid), "default") << pid << " is the oldest";
  for (const pid_t pid : {2, 104, 100 + room}) EXPECT_EQ(tenant_of(pid), "bomb") << pid;
  EXPECT_EQ(tenant_of(3), "other");
  EXPECT_TRUE(tenants_->is_frozen(id(4)));
  add_child(5, 1);
  EXPECT_EQ(tenants_->driven_out(), (std::map<uint32_t, uint64_t>{{*tenants_->find("bomb"), 1}}));
  ASSERT_TRUE(tenants_->attach(id(200), "lab")) << "moved by hand, it is nobody's heir";
  for (pid_t pid = 30'000; pid < 30'000 + 200; ++pid) add_child(pid, 2);
  next({});
  EXPECT_EQ(tenant_of(200), "lab");
}

TEST_F(TakeoverTest, AProcessThatCannotBeLookedAtHasNotEndedForThat) {
  ASSERT_TRUE(tenants_->create_transient(id(10), {}));
  processes_.is_readable = false;  // no descriptor is left
  next({});
  processes_.is_readable = true;
  next({});
  EXPECT_EQ(tenant_of(10), "run-10");
}

TEST_F(TakeoverTest, AFileThatHasChangedWinsOnlyWhereNothingWasSetAtRunTime) {
  const TenantsConfig before{.tenants = {{"web", {{"weight", "200"}, {"slo_us", "10"}}}},
                             .rules = {}};
  next(before);
  set("web", {{"weight", "500"}});
  const TenantsConfig after{.tenants = {{"web", {{"weight", "300"}, {"slo_us", "20"}}}},
                            .rules = {}};
  next(after);
  EXPECT_EQ(tenant("web").settings.weight, 500u);
  EXPECT_EQ(tenant("web").settings.slo, 20us);
  ASSERT_TRUE(tenants_->reload(after));
  EXPECT_EQ(tenant("web").settings.weight, 300u);
  next(after);
  EXPECT_EQ(tenant("web").settings.weight, 300u) << "the reload was noted";
}

TEST_F(TakeoverTest, ATenantThatOnlyAnOldFileNamedGoes) {
  next({.tenants = {{"web", {}}}, .rules = {}});
  ASSERT_TRUE(tenants_->attach(id(10), "web"));
  next({});
  EXPECT_FALSE(tenants_->find("web"));
  EXPECT_EQ(tenant_of(10), "default");
  EXPECT_EQ(entries(), 0u);
}

TEST_F(TakeoverTest, ACleanStopKeepsWhatWasSetAndClearsWhatWasSeen) {
  set("batch", {{"weight", "50"}});
  write_record(region_->processes[3].record, {.pid = 7});
  TenantRecord used{.name = "batch", .process_count = 2, .throttled_ns = 5, .memory_bytes = 9};
  used.gpu[1] = {.gpu_time_ns = 8};
  used.iteration_counts[2] = 4;
  write_record(region_->tenants[2].record, used);
  write_ending(*region_, 4711, EndingKind::kStopped, 0, Time(5s));
  clear_records(*region_);
  next({});
  EXPECT_EQ(tenant("batch").settings.weight, 50u);
  EXPECT_EQ(read_record(region_->processes[3].record)->pid, 0);
  const auto kept = read_record(region_->tenants[2].record);
  ASSERT_TRUE(kept);
  EXPECT_STREQ(kept->name, "batch") << "and the next agent counts on from here";
  EXPECT_EQ(kept->throttled_ns, 5u);
  EXPECT_EQ(kept->gpu[1].gpu_time_ns, 8u);
  EXPECT_EQ(kept->iteration_counts[2], 4u);
  EXPECT_EQ(kept->process_count, 0u);
  EXPECT_EQ(kept->memory_bytes, 0u);
  EXPECT_EQ(read_record(region_->ending)->agent_pid, 4711u);
}

TEST_F(TakeoverTest, ForgettingLeavesWhatTheFileSays) {
  const TenantsConfig file{.tenants = {{"web", {{"weight", "200"}}}}, .rules = {}};
  next(file);
  set("web", {{"weight", "500"}, {"max", "30%"}});
  set("default", {{"weight", "7"}});
  set("batch", {});
  ASSERT_TRUE(tenants_->attach(id(10), "web"));
  ASSERT_TRUE(tenants_->attach(id(11), "batch"));
  ASSERT_TRUE(tenants_->set_frozen("web", true));
  ASSERT_TRUE(tenants_->set_frozen(id(12), true));
  tenants_->forget();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tenant("web").settings.weight, 200u);
    EXPECT_FALSE(tenant("web").settings.cap);
    EXPECT_FALSE(tenant("web").is_frozen_by_user);
    EXPECT_EQ(tenant("default").settings, TenantSettings());
    EXPECT_FALSE(tenants_->find("batch"));
    EXPECT_EQ(tenant_of(10), "web") << "its tenant stays";
    EXPECT_EQ(tenant_of(11), "default");
    EXPECT_FALSE(tenants_->is_frozen(id(12)));
    EXPECT_EQ(entries(), 1u);
    next(file);
  }
}

TEST_F(TakeoverTest, WhatWasRemovedAndTheFileNamesComesBack) {
  const TenantsConfig file{.tenants = {{"web", {{"weight", "200"}}}}, .rules = {}};
  next(file);
  ASSERT_TRUE(tenants_->remove("web"));
  ASSERT_FALSE(tenants_->find("web"));
  DirectControl control(*tenants_);
  ASSERT_TRUE(control.forget(file));
  ASSERT_TRUE(tenants_->find("web"));
  EXPECT_EQ(tenant("web").settings.weight, 200u);
}

TEST_F(TakeoverTest, DamagedRecordsAreDroppedAndTheOthersTaken) {
  set("batch", {});
  ASSERT_TRUE(tenants_->attach(id(10), "batch"));
  RosterTenant bad;
  bad.name[0] = '/';
  write_record(region_->roster_tenants[5], bad);
  RosterTenant twice;
  std::string_view("batch").copy(twice.name, 5);
  write_record(region_->roster_tenants[6], twice);
  RosterTenant weightless;
  weightless.name[0] = 'w';
  weightless.set = 1;
  weightless.weight = 0;
  write_record(region_->roster_tenants[7], weightless);
  write_record(region_->roster_processes[9],
               {.pid = 11, .tenant = 5, .start_ticks = 1011, .flags = kRosterAttached});
  write_record(region_->roster_processes[10],
               {.pid = 12, .tenant = 99999, .start_ticks = 1012, .flags = kRosterAttached});
  next({});
  EXPECT_EQ(tenants_->slots().size(), 2u);
  EXPECT_EQ(tenant_of(10), "batch");
  EXPECT_EQ(tenant_of(11), "default");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(TakeoverTest, AFullRosterRefusesWhatItCouldNotKeep) {
  set("batch", {});
  for (pid_t pid = 100; pid < 100 + static_cast<pid_t>(kMaxRosterProcesses); ++pid)
    ASSERT_TRUE(tenants_->attach(id(pid), "batch"));
  EXPECT_EQ(tenants_->attach(id(10), "batch").error().code, std::errc::no_space_on_device);
  EXPECT_EQ(tenants_->set_frozen(id(10), true).error().code, std::errc::no_space_on_device);
  EXPECT_FALSE(tenants_->create_transient(id(10), {}));
  EXPECT_EQ(tenants_->slots().size(), 2u) << "no tenant is left behind";
  ProcessIdentity child;
  child.id = id(10);
  child.ancestors = {id(100)};
  EXPECT_EQ(tenants_->add_process(child), *tenants_->find("batch")) << "while this agent lives";
}

}  // namespace
}  // namespace gpushare
