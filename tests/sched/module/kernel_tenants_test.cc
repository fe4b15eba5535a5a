// SPDX-License-Identifier: Apache-2.0
#include "sched/module/kernel_tenants.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/sched/support/fake_proc_reader.h"
#include "tests/sched/support/policies.h"
#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kProgram{4711, 1000 + 4711};

Config config_of(std::string_view text) { return test::parse(text).value(); }

class KernelTenantsTest : public ::testing::Test {
 protected:
  void start(std::string_view config = "", bool is_told = true) {
    mirror_.emplace(tree_, tenants_, processes_, is_told, ask_);
    mirror_->start(config_of(config));
  }
  // Tells the mirror what the module would, and returns what follow() says.
  template <class What>
  bool tell(What what) {
    mirror_->on_notice({Time(1s), std::move(what)});
    return mirror_->follow(Time(1s));
  }
  void operator_writes(const std::string& tenant, const std::string& key,
                       const std::string& value) {
    tree_.put("tenants/" + tenant + "/" + key, value + "\n");
    tree_.bump();
  }
  const TenantSettings& settings(std::string_view tenant) {
    return tenants_.at(tenants_.find(tenant).value())->settings;
  }
  std::string tenant_of(const ProcessId& process) {
    return tenants_.at(tenants_.tenant_of(process))->name;
  }
  // The agent sees kProgram on a GPU.
  void meet(const std::string& command, uid_t uid = 0) {
    ProcessIdentity identity;
    identity.id = kProgram;
    identity.command = command;
    identity.uid = uid;
    identity.user = processes_.user_name(uid).value_or("");
    tenants_.add_process(std::move(identity));
  }

  UserIds::Ask ask_ = system_uid_of;
  test::PlainSysfs tree_;
  Tenants tenants_;
  test::FakeProcReader processes_;
  std::optional<KernelTenants> mirror_;
};

// Limits of single GPUs are only in sysfs, by UUID or by RM's instance.
TEST_F(KernelTenantsTest, ALimitOfOneGpuIsMirroredByTheIndexOfThatGpu) {
  start("[tenant.batch]\nmax = \"50%\"\n");
  std::vector<GpuInfo> gpus(2);
  gpus[0].instance = 1;
  gpus[0].uuid = "GPU-aa";
  gpus[1].index = 1;
  gpus[1].uuid = "GPU-bb";
  operator_writes("batch", "gpu_max", "GPU-aa 20000 100000\ngpu0 80000 100000\nGPU-cc 1000 1000");
  mirror_->set_gpus(gpus);
  EXPECT_TRUE(mirror_->follow(Time(1s)));
  const auto cap_on = [&](uint32_t gpu) {
    return tenants_.at(*tenants_.find("batch"))->cap_on(gpu);
  };
  EXPECT_EQ(cap_on(0), (Cap{20ms, 100ms})) << "gpu0 is RM's instance, not this one";
  EXPECT_EQ(cap_on(1), (Cap{50ms, 100ms})) << "the lesser of both";
  EXPECT_EQ(cap_on(2), (Cap{50ms, 100ms}));
  EXPECT_FALSE(mirror_->follow(Time(2s))) << "nothing has changed";
  operator_writes("batch", "gpu_max", "GPU-bb 10000 1000000\nnonsense\nGPU-aa\nGPU-aa 1 2 3");
  EXPECT_TRUE(tell(SettingsChanged{"batch", SettingsChanged::What::kSettings}));
  EXPECT_EQ(cap_on(0), (Cap{50ms, 100ms}));
  EXPECT_EQ(cap_on(1), (Cap{10ms, 1s}));
}

constexpr std::string_view kTwoTenants = R"(
[tenant.batch]
weight = 50
max = "30%"
match = [{ cgroup = "/batch.slice/*" }]
[tenant.default]
weight = 80
)";

TEST_F(KernelTenantsTest, AtBootTheFileIsWrittenIntoSysfs) {
  start(kTwoTenants);
  EXPECT_EQ(tree_.get("batch", "weight"), "50");
  EXPECT_EQ(tree_.get("batch", "max"), "30000 100000");
  EXPECT_EQ(tree_.get("batch", "match_cgroup"), "/batch.slice/*");
  EXPECT_EQ(tree_.get("default", "weight"), "80");
  EXPECT_EQ(settings("batch").weight, 50u);
  EXPECT_EQ(settings("default").weight, 80u);
}

TEST_F(KernelTenantsTest, WhatAnOperatorWroteSurvivesARestartOfTheAgent) {
  start(kTwoTenants);
  operator_writes("batch", "weight", "77");
  operator_writes("batch", "max", "max 100000");
  operator_writes("batch", "match_cgroup", "");
  operator_writes("default", "weight", "60");
  ASSERT_TRUE(tree_.create("research"));
  tenants_ = {};
  start(kTwoTenants);
  EXPECT_EQ(tree_.get("batch", "weight"), "77");
  EXPECT_EQ(tree_.get("batch", "match_cgroup"), "");
  EXPECT_EQ(settings("batch").weight, 77u);
  EXPECT_FALSE(settings("batch").cap);
  EXPECT_EQ(settings("default").weight, 60u);
  EXPECT_TRUE(tenants_.find("research"));
}

TEST_F(KernelTenantsTest, TheTreeIsMirrored) {
  start(kTwoTenants);
  meet("python train.py");
  for (const char* name : {"batch/night", "batch/night/shard-1"}) ASSERT_TRUE(tree_.create(name));
  operator_writes("batch/night", "weight", "300");
  tell(TenantAssigned{kProgram, "batch/night/shard-1", true});  // before their own notices
  EXPECT_EQ(tenant_of(kProgram), "batch/night/shard-1");
  EXPECT_EQ(settings("batch/night").weight, 300u);
  const Tenant& shard = *tenants_.at(*tenants_.find("batch/night/shard-1"));
  EXPECT_EQ(shard.above,
            (std::vector<uint32_t>{*tenants_.find("batch/night"), *tenants_.find("batch")}));
  tell(TenantAssigned{kProgram, "default"});
  EXPECT_EQ(tenant_of(kProgram), "default");
  tree_.put("tenants/batch/night/procs", std::to_string(kProgram.pid) + "\n");
  tell(SettingsChanged{"batch/night", SettingsChanged::What::kMembers});
  EXPECT_EQ(tenant_of(kProgram), "batch/night");
  operator_writes("batch/night", "max", "40000 100000");
  tell(SettingsChanged{"batch/night"});
  EXPECT_TRUE(settings("batch/night").cap);
  operator_writes("batch", "freeze", "1");
  tell(SettingsChanged{"batch"});
  EXPECT_TRUE(shard.is_frozen);
}

// Notices of several may come at once, and those of a whole tree in any order.
TEST_F(KernelTenantsTest, ATreeComesAndGoesAtOnce) {
  start(kTwoTenants);
  const std::vector<std::string> names = {"a", "a/b", "a/b/c", "a-1", "a-1/x"};
  for (const std::string& name : names) ASSERT_TRUE(tree_.create(name));
  for (const std::string& name : names | std::views::reverse)
    mirror_->on_notice({.what = SettingsChanged{name}});
  EXPECT_TRUE(mirror_->follow(Time(1s)));
  for (const std::string& name : names) EXPECT_TRUE(tenants_.find(name)) << name;
  EXPECT_EQ(tenants_.at(*tenants_.find("a/b/c"))->above.size(), 2u);
  for (const std::string& name : names | std::views::reverse) ASSERT_TRUE(tree_.remove(name));
  for (const std::string& name : names) mirror_->on_notice({.what = SettingsChanged{name}});
  EXPECT_TRUE(mirror_->follow(Time(2s)));
  for (const std::string& name : names) EXPECT_FALSE(tenants_.find(name)) << name;
}

// The kernel would not remove it: what is in it goes to the one above.
TEST_F(KernelTenantsTest, WhatIsInARemovedOneIsInTheOneAbove) {
  start("[tenant.team]\n");
  ASSERT_TRUE(mirror_->set("team/job", {}, /*create=*/true));
  tree_.put("tenants/team/job/procs", "4711\n4712\n");
  ASSERT_TRUE(mirror_->remove("team/job"));
  EXPECT_EQ(tree_.procs("team").value(), (std::vector<pid_t>{4711, 4712}));
  EXPECT_FALSE(tenants_.find("team/job"));
}

// What was set below one that the file does not name any more is not lost to a module that comes.
TEST_F(KernelTenantsTest, WhatIsAboveIsHandedOverToo) {
  TenantsConfig before;
  before.tenants = {{"team", {}}};
  ASSERT_TRUE(tenants_.start(before));
  ASSERT_TRUE(tenants_.set("team/job", std::vector<Setting>{{"weight", "300"}}, true));
  TenantsConfig now;
  ASSERT_TRUE(tenants_.reload(now));
  KernelTenants mirror(tree_, tenants_, processes_, /*is_told=*/true);
  mirror.hand_over(now);
  EXPECT_EQ(tree_.get("team/job", "weight"), "300");
}

TEST_F(KernelTenantsTest, TheFileMayNameThoseBelowBeforeThoseAbove) {
  start("[tenant.\"team/job\"]\nweight = 300\n[tenant.team]\nweight = 50\n");
  EXPECT_EQ(tree_.get("team", "weight"), "50");
  EXPECT_EQ(tree_.get("team/job", "weight"), "300");
  EXPECT_EQ(settings("team").weight, 50u);
  ASSERT_TRUE(mirror_->set("team/job/part", {}, /*create=*/true));
  EXPECT_TRUE(tenants_.find("team/job/part"));
  EXPECT_FALSE(mirror_->remove("team/job"));
  EXPECT_TRUE(tenants_.find("team/job"));
  EXPECT_TRUE(mirror_->remove("team/job/part"));
  EXPECT_TRUE(mirror_->remove("team/job"));
  EXPECT_FALSE(tenants_.find("team/job"));
}

TEST_F(KernelTenantsTest, FreezesAreThoseOfSysfs) {
  start(kTwoTenants);
  const auto is_frozen = [&] { return tenants_.at(*tenants_.find("batch"))->is_frozen_by_user; };
  operator_writes("batch", "freeze", "1");
  EXPECT_TRUE(tell(SettingsChanged{"batch"}));
  EXPECT_TRUE(is_frozen());
  ASSERT_TRUE(mirror_->set_frozen("batch", false));
  EXPECT_FALSE(is_frozen());
  EXPECT_EQ(tree_.get("batch", "freeze"), "0");
  ASSERT_TRUE(mirror_->set_frozen("batch", true));
  EXPECT_EQ(tree_.get("batch", "freeze"), "1");
  tenants_ = {};
  start(kTwoTenants);
  EXPECT_TRUE(is_frozen()) << "it survives a restart of the agent";
  ASSERT_TRUE(mirror_->forget(config_of(kTwoTenants)));
  EXPECT_FALSE(is_frozen());
  EXPECT_EQ(tree_.get("batch", "freeze"), "0");
  EXPECT_EQ(mirror_->set_frozen("nobody", true).error().code, std::errc::no_such_file_or_directory);
}

TEST_F(KernelTenantsTest, ForgettingBringsBackWhatWasRemoved) {
  start(kTwoTenants);
  ASSERT_TRUE(mirror_->remove("batch"));
  ASSERT_FALSE(tenants_.find("batch"));
  ASSERT_TRUE(mirror_->forget(config_of(kTwoTenants)));
  ASSERT_TRUE(tenants_.find("batch"));
  EXPECT_EQ(settings("batch").weight, 50u);
}

TEST_F(KernelTenantsTest, AFreezeIsHandedOver) {
  ASSERT_TRUE(tenants_.set("mine", {}, true));
  ASSERT_TRUE(tenants_.set_frozen("mine", true));
  mirror_.emplace(tree_, tenants_, processes_, true);
  mirror_->hand_over(config_of(""));
  EXPECT_EQ(tree_.get("mine", "freeze"), "1");
}

TEST_F(KernelTenantsTest, OnReloadTheFileWinsForWhatItNames) {
  start(kTwoTenants);
  operator_writes("batch", "weight", "77");
  operator_writes("batch", "priority", "idle");
  mirror_->reload(config_of(kTwoTenants));
  EXPECT_EQ(tree_.get("batch", "weight"), "50");
  EXPECT_EQ(tree_.get("batch", "priority"), "idle");
  EXPECT_EQ(settings("batch").weight, 50u);
  EXPECT_EQ(settings("batch").priority, Priority::kIdle);
}

TEST_F(KernelTenantsTest, FollowsWhatAnOperatorWrites) {
  start();
  operator_writes("default", "weight", "300");
  EXPECT_TRUE(tell(SettingsChanged{"default"}));
  EXPECT_EQ(settings("default").weight, 300u);
  EXPECT_FALSE(tell(SettingsChanged{"default"})) << "nothing new";
  ASSERT_TRUE(tree_.create("late"));
  EXPECT_TRUE(tell(SettingsChanged{"late"}));
  EXPECT_TRUE(tenants_.find("late"));
  ASSERT_TRUE(tree_.remove("late"));
  EXPECT_TRUE(tell(SettingsChanged{"late"}));
  EXPECT_FALSE(tenants_.find("late"));
}

TEST_F(KernelTenantsTest, AfterALossEverythingIsReadAgain) {
  start(kTwoTenants);
  operator_writes("batch", "weight", "300");
  ASSERT_TRUE(tree_.create("late"));
  ASSERT_TRUE(tree_.attach(kProgram.pid, "late"));
  EXPECT_TRUE(tell(NoticesLost{}));
  EXPECT_EQ(settings("batch").weight, 300u);
  EXPECT_EQ(tenant_of(kProgram), "late");
  ASSERT_TRUE(tree_.remove("batch"));
  EXPECT_TRUE(tell(NoticesLost{}));
  EXPECT_FALSE(tenants_.find("batch"));
}

TEST_F(KernelTenantsTest, WithoutNoticesItLooks) {
  start("", /*is_told=*/false);
  EXPECT_FALSE(mirror_->follow(Time(1s)));
  operator_writes("default", "weight", "300");
  mirror_->follow(Time(1s) + 50ms);
  EXPECT_EQ(settings("default").weight, 100u) << "not on every tick";
  EXPECT_TRUE(mirror_->follow(Time(1s) + 100ms));
  EXPECT_EQ(settings("default").weight, 300u);
}

TEST_F(KernelTenantsTest, TheKernelSaysWhereAProcessBelongs) {
  start(kTwoTenants);
  tell(TenantAssigned{kProgram, "batch", true});
  EXPECT_EQ(tenant_of(kProgram), "batch");
  tell(TenantAssigned{kProgram, "default", false});
  EXPECT_EQ(tenant_of(kProgram), "default");
  ASSERT_TRUE(tree_.create("late"));  // the tenant's own notice comes later
  tell(TenantAssigned{kProgram, "late", false});
  EXPECT_EQ(tenant_of(kProgram), "late");
  tell(TenantAssigned{kProgram, "gone", false});
  EXPECT_EQ(tenant_of(kProgram), "late") << "a tenant that went meanwhile";
}

constexpr std::string_view kByCommand = R"(
[tenant.jobs]
match = [{ command = "train*" }]
)";

TEST_F(KernelTenantsTest, RulesThatTheKernelLacksAreAppliedAndWrittenBack) {
  start(kByCommand);
  tell(TenantAssigned{kProgram, "default", true});
  EXPECT_TRUE(tree_.attached.empty()) << "nothing is known of it yet";
  meet("train.py");
  mirror_->follow(Time(1s));
  ASSERT_EQ(tree_.attached.size(), 1u);
  EXPECT_EQ(tree_.attached[0], std::pair(kProgram.pid, std::string("jobs")));
  mirror_->follow(Time(1s));
  EXPECT_EQ(tree_.attached.size(), 1u);
}

TEST_F(KernelTenantsTest, AnOperatorsMoveIsNotOverruledByARule) {
  start(kByCommand);
  tell(TenantAssigned{kProgram, "default", false});  // echo PID > tenants/default/procs
  meet("train.py");
  mirror_->follow(Time(1s));
  EXPECT_TRUE(tree_.attached.empty());
  EXPECT_EQ(tenant_of(kProgram), "default");
}

TEST_F(KernelTenantsTest, RulesOfTheKernelHoldForThoseThatItSawBeforeItHadThem) {
  start(R"([tenant.alice]
match = [{ user = "1000" }])");
  EXPECT_EQ(tree_.get("alice", "match_uid"), "1000");
  tell(TenantAssigned{kProgram, "default", true});
  meet("", 1000);
  EXPECT_EQ(tenant_of(kProgram), "alice");
  mirror_->follow(Time(1s));
  EXPECT_EQ(tree_.attached.back(), std::pair(kProgram.pid, std::string("alice")));
}

// The agent's loop goes on, and applies the rules itself that the kernel does not have yet.
TEST_F(KernelTenantsTest, ANameServiceThatHangsHoldsUpNobody) {
  std::promise<void> answers;
  ask_ = [gate = answers.get_future().share()](const std::string& user) -> std::optional<uid_t> {
    gate.wait();
    return user == "alice" ? std::optional<uid_t>(1000) : std::nullopt;
  };
  auto started = std::async(std::launch::async, [&] {
    start(R"(
[tenant.batch]
match = [{ cgroup = "/batch.slice/*" }]
[tenant.alice]
match = [{ user = "alice" }]
[tenant.bob]
match = [{ user = "1001" }]
[tenant.carol]
match = [{ user = "1002" }])");
  });
  EXPECT_EQ(started.wait_for(10s), std::future_status::ready) << "it waits for the name service";
  if (HasFailure()) answers.set_value();
  ASSERT_NO_THROW(started.get());
  if (HasFailure()) return;
  EXPECT_EQ(tree_.get("batch", "match_cgroup"), "/batch.slice/*");
  EXPECT_EQ(tree_.get("alice", "match_uid"), "");
  EXPECT_EQ(tree_.get("bob", "match_uid"), "") << "the first rule that matches decides";
  mirror_->follow(Time(1s));
  meet("", 1000);
  EXPECT_EQ(tenant_of(kProgram), "alice");
  operator_writes("carol", "match_uid", "77");
  tell(SettingsChanged{"carol"});

  answers.set_value();
  while (tree_.get("bob", "match_uid") != "1001") {
    mirror_->follow(Time(1s));
    std::this_thread::yield();
  }
  EXPECT_EQ(tree_.get("carol", "match_uid"), "77") << "what an operator wrote meanwhile stays";
  EXPECT_EQ(tree_.get("alice", "match_uid"), "1000");
  EXPECT_EQ(tenant_of(kProgram), "alice");
}

TEST_F(KernelTenantsTest, ARuleThatAnOperatorTookAwayHoldsNoMore) {
  start(R"([tenant.alice]
match = [{ user = "1000" }, { command = "train*" }])");
  operator_writes("alice", "match_uid", "");
  tell(SettingsChanged{"alice"});
  meet("", 1000);
  EXPECT_EQ(tenant_of(kProgram), "default");
  meet("train.py");
  EXPECT_EQ(tenant_of(kProgram), "alice") << "by the other rule";
}

TEST_F(KernelTenantsTest, ARuleThatAnOperatorWroteHoldsForThoseThatTheKernelDidNotSee) {
  start(kByCommand);
  operator_writes("jobs", "match_uid", "1000\n");
  tell(SettingsChanged{"jobs"});
  tell(TenantAssigned{kProgram, "default", true});
  meet("", 1000);
  mirror_->follow(Time(1s));
  ASSERT_EQ(tree_.attached.size(), 1u);
  EXPECT_EQ(tree_.attached[0], std::pair(kProgram.pid, std::string("jobs")));
}

// --- requests ---------------------------------------------------------------------------------

TEST_F(KernelTenantsTest, RequestsAreWrittenAndReadBack) {
  start();
  ASSERT_TRUE(mirror_->set("a", std::vector<Setting>{{"weight", "300"}, {"max", "30%"}}, true));
  EXPECT_EQ(tree_.get("a", "weight"), "300");
  EXPECT_EQ(settings("a").weight, 300u);
  ASSERT_TRUE(mirror_->attach(kProgram, "a"));
  EXPECT_EQ(tree_.attached.back(), std::pair(kProgram.pid, std::string("a")));
  EXPECT_EQ(tenant_of(kProgram), "a");
  ASSERT_TRUE(mirror_->remove("a"));
  EXPECT_FALSE(tree_.has("a"));
  EXPECT_FALSE(tenants_.find("a"));
}

TEST_F(KernelTenantsTest, RefusedRequestsLeaveNothingBehind) {
  start();
  const auto bad = mirror_->set("a", std::vector<Setting>{{"weight", "0"}}, true);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().detail, "weight: '0' is not allowed; allowed: 1 to 10000");
  EXPECT_FALSE(tree_.has("a"));
  const auto missing = mirror_->set("a", std::vector<Setting>{{"weight", "10"}}, false);
  EXPECT_EQ(missing.error().detail, "there is no tenant 'a'");
  EXPECT_EQ(mirror_->remove("default").error().code, std::errc::operation_not_permitted);
  tree_.dead = 12;
  EXPECT_EQ(mirror_->attach({12, 1}, "default").error().code, std::errc::no_such_process);
  EXPECT_EQ(mirror_->create_transient({12, 1}, {}).error().code, std::errc::no_such_process);
  EXPECT_FALSE(tree_.has("run-12"));
}

TEST_F(KernelTenantsTest, ATransientTenantGoesFromSysfsWithItsLastProcess) {
  start();
  const auto name = mirror_->create_transient(kProgram, std::vector<Setting>{{"weight", "300"}});
  ASSERT_EQ(name, "run-4711");
  EXPECT_EQ(tree_.get("run-4711", "weight"), "300");
  EXPECT_EQ(tenant_of(kProgram), "run-4711");
  mirror_->follow(Time(1s));
  EXPECT_TRUE(tree_.has("run-4711"));
  tenants_.end_process(kProgram);
  mirror_->follow(Time(1s));
  EXPECT_FALSE(tree_.has("run-4711"));
}

TEST_F(KernelTenantsTest, ATransientTenantOfAnAgentThatDiedStillGoes) {
  ASSERT_TRUE(tree_.create("run-4711"));
  ASSERT_TRUE(tree_.attach(kProgram.pid, "run-4711"));
  ASSERT_TRUE(tree_.create("run-99"));       // its process ended unseen
  ASSERT_TRUE(tree_.create("run-nightly"));  // an operator made it
  start();
  mirror_->follow(Time(1s));
  EXPECT_FALSE(tree_.has("run-99"));
  EXPECT_TRUE(tree_.has("run-4711"));
  tenants_.end_process(kProgram);
  mirror_->follow(Time(1s));
  EXPECT_FALSE(tree_.has("run-4711"));
  EXPECT_TRUE(tree_.has("run-nightly"));
}

// --- what an agent before has left ---------------------------------------------------------------

class HandOverTest : public KernelTenantsTest {
 protected:
  // An agent without the module was here.
  HandOverTest() {
    EXPECT_TRUE(tenants_.set("late", std::vector<Setting>{{"weight", "300"}}, true));
    EXPECT_TRUE(tenants_.set("batch", std::vector<Setting>{{"weight", "500"}}, true));
    EXPECT_TRUE(tenants_.attach(kProgram, "late"));
    EXPECT_TRUE(tenants_.set_frozen("late", true));
    EXPECT_TRUE(tenants_.create_transient({99, 1000 + 99}, {}));
  }
  void take_over(std::string_view config) {
    mirror_.emplace(tree_, tenants_, processes_, /*is_told=*/true);
    mirror_->hand_over(config_of(config));
    mirror_->start(config_of(config));
  }
};

TEST_F(HandOverTest, WhatWasSetWithoutTheModuleIsWrittenIntoSysfs) {
  take_over(kTwoTenants);
  EXPECT_EQ(tree_.get("late", "weight"), "300");
  EXPECT_EQ(tree_.get("batch", "weight"), "500");
  EXPECT_EQ(tree_.get("batch", "max"), "30000 100000") << "of the file";
  EXPECT_EQ(tree_.get("batch", "match_cgroup"), "/batch.slice/*");
  EXPECT_EQ(tenant_of(kProgram), "late");
  EXPECT_TRUE(tenants_.at(tenants_.find("late").value())->is_frozen_by_user);
  EXPECT_TRUE(tree_.has("run-99"));
  tenants_.end_process({99, 1000 + 99});
  mirror_->follow(Time(1s));
  EXPECT_FALSE(tree_.has("run-99"));
}

TEST_F(HandOverTest, WhatAnOperatorHasChosenInSysfsStays) {
  ASSERT_TRUE(tree_.create("late"));
  operator_writes("late", "weight", "77");
  take_over("");
  EXPECT_EQ(settings("late").weight, 77u);
  EXPECT_EQ(tenant_of(kProgram), "default");
}

TEST_F(HandOverTest, DoneAgainAfterADeathInTheMiddleItEndsTheSame) {
  mirror_.emplace(tree_, tenants_, processes_, /*is_told=*/true);
  mirror_->hand_over(config_of(""));
  take_over("");
  EXPECT_EQ(settings("late").weight, 300u);
  EXPECT_EQ(tenant_of(kProgram), "late");
}

TEST_F(HandOverTest, WhereTheModuleWasTheKernelsWordCounts) {
  ASSERT_TRUE(tree_.create("late"));
  start();
  EXPECT_EQ(tenant_of(kProgram), "default") << "somebody moved it meanwhile";
  EXPECT_FALSE(tenants_.at(tenants_.find("late").value())->is_frozen_by_user)
      << "somebody thawed it meanwhile";
  EXPECT_FALSE(tenants_.find("batch")) << "somebody removed it meanwhile";
}

TEST_F(KernelTenantsTest, ForgettingLeavesWhatTheFileSays) {
  start(kTwoTenants);
  operator_writes("batch", "weight", "77");
  operator_writes("batch", "priority", "idle");
  ASSERT_TRUE(tree_.create("late"));
  tell(NoticesLost{});
  ASSERT_TRUE(tenants_.set_frozen("batch", true));
  ASSERT_TRUE(mirror_->forget(config_of(kTwoTenants)));
  EXPECT_FALSE(tree_.has("late"));
  EXPECT_FALSE(tenants_.find("late"));
  EXPECT_EQ(tree_.get("batch", "weight"), "50");
  EXPECT_EQ(tree_.get("batch", "priority"), "normal");
  EXPECT_EQ(settings("default").weight, 80u);
  EXPECT_FALSE(tenants_.at(tenants_.find("batch").value())->is_frozen_by_user);
}

}  // namespace
}  // namespace gpushare
