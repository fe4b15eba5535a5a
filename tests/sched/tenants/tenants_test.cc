// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

ProcessId id(pid_t pid) { return {pid, 1000}; }

ProcessIdentity identity(pid_t pid, std::string command, std::vector<ProcessId> ancestors = {}) {
  return {.id = id(pid),
          .ancestors = std::move(ancestors),
          .cgroup_path = {},
          .uid = 0,
          .user = {},
          .command = std::move(command),
          .command_line = {}};
}

TenantsConfig config(std::vector<TenantConfig> tenants, std::vector<Rule> rules = {}) {
  return {.tenants = std::move(tenants), .rules = std::move(rules)};
}

Rule by_command(std::string tenant, std::string command) {
  return {std::move(tenant), {}, {}, std::move(command)};
}

class TenantsTest : public testing::Test {
 protected:
  const Tenant& get(std::string_view name) { return *tenants.at(tenants.find(name).value()); }
  uint32_t make(std::string_view name, std::vector<Setting> settings = {}) {
    return tenants.set(name, settings, true).value();
  }
  void reload(std::vector<TenantConfig> of_file, std::vector<Rule> rules = {}) {
    ASSERT_TRUE(tenants.reload(config(std::move(of_file), std::move(rules))));
  }
  void attach(pid_t pid, std::string_view tenant) { ASSERT_TRUE(tenants.attach(id(pid), tenant)); }
  std::string name_of(pid_t pid) { return tenants.at(tenants.tenant_of(id(pid)))->name; }

  Tenants tenants;
};

TEST_F(TenantsTest, DefaultIsThereInSlotZeroAndCannotBeRemoved) {
  EXPECT_EQ(tenants.find("default"), kDefaultTenant);
  EXPECT_THAT(tenants.slots(), ElementsAre(0));
  EXPECT_FALSE(tenants.remove("default"));
  EXPECT_EQ(get("default").settings, TenantSettings());
}

TEST_F(TenantsTest, SetMakesATenantOnlyWhenAsked) {
  const std::vector<Setting> changes = {{"weight", "300"}};
  const auto refused = tenants.set("a", changes, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::no_such_file_or_directory);
  EXPECT_FALSE(tenants.set("a b", changes, true));
  EXPECT_EQ(make("a", changes), 1U);
  EXPECT_EQ(get("a").settings.weight, 300U);
}

TEST_F(TenantsTest, ABadSettingMakesNoTenantAndChangesNone) {
  const std::vector<Setting> bad = {{"weight", "300"}, {"max", "0%"}};
  EXPECT_FALSE(tenants.set("a", bad, true));
  EXPECT_EQ(tenants.find("a"), std::nullopt);
  EXPECT_FALSE(tenants.set("default", bad, false));
  EXPECT_EQ(get("default").settings, TenantSettings());
}

TEST_F(TenantsTest, SlotsAreStableAndReusedLowestFirst) {
  EXPECT_EQ(make("a"), 1U);
  EXPECT_EQ(make("b"), 2U);
  ASSERT_TRUE(tenants.remove("a"));
  EXPECT_EQ(tenants.find("b"), 2U);
  EXPECT_EQ(tenants.at(1), nullptr);
  EXPECT_EQ(make("c"), 3U) << "somebody may still keep something of the one before";
  tenants.reuse_slots();
  EXPECT_EQ(make("d"), 1U);
}

TEST_F(TenantsTest, ARemovedTenantsSlotIsUsedAtOnceOnlyWhenNoOtherIsLeft) {
  for (uint32_t i = 1; i < kMaxTenants; ++i) make("t" + std::to_string(i));
  ASSERT_TRUE(tenants.remove("t7"));
  EXPECT_EQ(make("next"), 7U);
}

TEST_F(TenantsTest, AFreezeIsOfTheProcessWhereverItGoes) {
  make("a");
  ASSERT_TRUE(tenants.set_frozen(id(10), true));
  EXPECT_TRUE(tenants.is_frozen(id(10)));
  EXPECT_FALSE(tenants.is_frozen({10, 999})) << "another process that has the same pid";
  EXPECT_THAT(tenants.attached_without_gpu(), ElementsAre(id(10)));
  attach(1, "a");
  tenants.add_process(identity(10, "x", {id(1)}));
  EXPECT_EQ(name_of(10), "a") << "it inherits all the same";
  tenants.leave_gpus(id(10));
  EXPECT_TRUE(tenants.is_frozen(id(10)));
  ASSERT_TRUE(tenants.remove("a"));
  EXPECT_TRUE(tenants.is_frozen(id(10)));
  ASSERT_TRUE(tenants.set_frozen(id(10), false));
  EXPECT_FALSE(tenants.is_frozen(id(10)));
  EXPECT_THAT(tenants.attached_without_gpu(), IsEmpty());
  ASSERT_TRUE(tenants.set_frozen(id(10), true));
  tenants.end_process(id(10));
  EXPECT_FALSE(tenants.is_frozen(id(10)));
}

TEST_F(TenantsTest, AProcessIsNotThawedWhileItsTenantIsFrozen) {
  make("a");
  attach(10, "a");
  ASSERT_TRUE(tenants.set_frozen(id(10), true));
  ASSERT_TRUE(tenants.set_frozen("a", true));
  const auto refused = tenants.set_frozen(id(10), false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("gpushare thaw a"), std::string::npos);
  EXPECT_TRUE(tenants.is_frozen(id(10))) << "nothing has changed";
  ASSERT_TRUE(tenants.set_frozen("a", false));
  EXPECT_TRUE(tenants.set_frozen(id(10), false));
}

TEST_F(TenantsTest, AFullTableIsAnErrorNotACrash) {
  for (uint32_t i = 1; i < kMaxTenants; ++i) make("t" + std::to_string(i));
  const auto made = tenants.set("one-more", {}, true);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, std::errc::no_space_on_device);
  const auto reloaded = tenants.reload(config({{"from-file", {}}}));
  EXPECT_FALSE(reloaded);
  EXPECT_EQ(tenants.slots().size(), kMaxTenants);
}

TEST_F(TenantsTest, AttachmentGoesBeforeRulesAndRulesGoInOrder) {
  reload({{"a", {}}, {"b", {}}}, {by_command("b", "train*"), by_command("a", "t*")});
  tenants.add_process(identity(10, "train"));
  tenants.add_process(identity(11, "top"));
  tenants.add_process(identity(12, "bash"));
  EXPECT_EQ(name_of(10), "b");
  EXPECT_EQ(name_of(11), "a");
  EXPECT_EQ(name_of(12), "default");
  attach(10, "a");
  EXPECT_EQ(name_of(10), "a");
  EXPECT_EQ(name_of(999), "default");
}

TEST_F(TenantsTest, AnAttachmentOutlivesItsProgramForTheNextOneAndForChildren) {
  make("a");
  attach(1, "a");
  tenants.add_process(identity(1, "launcher"));
  tenants.add_process(identity(2, "other"));
  tenants.leave_gpus(id(1));  // by exec
  tenants.leave_gpus(id(2));
  EXPECT_THAT(tenants.attached_without_gpu(), ElementsAre(id(1)));
  tenants.add_process(identity(1, "worker"));
  tenants.add_process(identity(3, "child", {id(1)}));
  EXPECT_EQ(name_of(1), "a");
  EXPECT_EQ(name_of(3), "a");
}

TEST_F(TenantsTest, ATransientTenantStaysUntilItsScopeIsEmpty) {
  ASSERT_TRUE(tenants.create_transient(id(2), {}));
  ASSERT_TRUE(tenants.attach_scope("/a.scope", "run-2"));
  EXPECT_FALSE(tenants.attach_scope("/b.scope", "nobody"));
  tenants.end_process(id(2));
  EXPECT_TRUE(tenants.find("run-2"));
  EXPECT_THAT(tenants.scopes(), ElementsAre("/a.scope"));
  tenants.end_scope("/a.scope");
  EXPECT_FALSE(tenants.find("run-2"));
  make("a");
  ASSERT_TRUE(tenants.attach_scope("/a.scope", "a"));
  ASSERT_TRUE(tenants.remove("a"));
  EXPECT_THAT(tenants.scopes(), IsEmpty()) << "its slot is another's next";
}

// A pod's group lies in that of all pods, whichever was attached first.
TEST_F(TenantsTest, OfScopesWithinEachOtherTheInnermostHolds) {
  make("outer");
  make("inner");
  ASSERT_TRUE(tenants.attach_scope("/pods", "outer"));
  ASSERT_TRUE(tenants.attach_scope("/pods/a", "inner"));
  const auto tenant_in = [&](int pid, const std::string& cgroup) {
    ProcessIdentity process = identity(pid, "x");
    process.cgroup_path = cgroup;
    tenants.add_process(process);
    return name_of(pid);
  };
  EXPECT_EQ(tenant_in(1, "/pods/a"), "inner");
  EXPECT_EQ(tenant_in(2, "/pods/a/b"), "inner");
  EXPECT_EQ(tenant_in(3, "/pods/ab"), "outer");
  EXPECT_EQ(tenant_in(4, "/pods"), "outer");
}

TEST_F(TenantsTest, EveryAttachmentIsTold) {
  std::vector<ProcessId> told;
  tenants.on_attach([&](ProcessId process) { told.push_back(process); });
  make("a");
  attach(1, "a");
  ASSERT_TRUE(tenants.create_transient(id(2), {}));
  EXPECT_FALSE(tenants.attach(id(3), "nobody"));
  EXPECT_THAT(told, ElementsAre(id(1), id(2)));
}

TEST_F(TenantsTest, AnAttachmentIsInheritedFromTheNearestAncestorAndOutlivesIt) {
  make("shell");
  make("inner");
  attach(1, "shell");
  attach(2, "inner");
  tenants.add_process(identity(10, "x", {id(5), id(1)}));
  tenants.add_process(identity(11, "x", {id(5), id(2), id(1)}));
  tenants.add_process(identity(12, "x", {{1, 77}}));
  EXPECT_EQ(name_of(10), "shell");
  EXPECT_EQ(name_of(11), "inner");
  EXPECT_EQ(name_of(12), "default") << "another process that had the same pid";
  EXPECT_THAT(tenants.attached_without_gpu(), ElementsAre(id(1), id(2)));
  tenants.end_process(id(1));
  EXPECT_EQ(name_of(10), "shell");
  tenants.add_process(identity(13, "x", {id(10)}));
  EXPECT_EQ(name_of(13), "shell") << "through the child that inherited";
}

TEST_F(TenantsTest, AProcessThatIsSeenBeforeItsAncestorIsAttachedStaysWhereItIs) {
  make("shell");
  tenants.add_process(identity(10, "x", {id(1)}));
  attach(1, "shell");
  EXPECT_EQ(name_of(10), "default");
}

TEST_F(TenantsTest, WhereOneWouldBeIsToldWithoutAddingIt) {
  const uint32_t lab = make("lab"), jobs = make("jobs");
  reload({}, {by_command("jobs", "train*")});
  attach(1, "lab");
  const uint64_t generation = tenants.generation();
  EXPECT_EQ(tenants.place_of(identity(2, "x", {id(1)})), lab);
  EXPECT_EQ(tenants.place_of(identity(3, "train.py")), jobs);
  EXPECT_EQ(tenants.place_of(identity(3, "x")), kDefaultTenant);
  EXPECT_EQ(tenants.generation(), generation);
  EXPECT_EQ(tenants.tenant_of(id(3)), kDefaultTenant) << "it is not known";
  tenants.add_process(identity(4, "x"));
  EXPECT_EQ(tenants.place_of(identity(4, "train.py")), kDefaultTenant) << "it is decided";
}

TEST_F(TenantsTest, ANewIdentityIsLookedAtAgain) {
  reload({{"a", {}}}, {by_command("a", "train")});
  tenants.add_process(identity(10, "bash"));
  EXPECT_EQ(name_of(10), "default");
  tenants.add_process(identity(10, "train"));
  EXPECT_EQ(name_of(10), "a");
}

TEST_F(TenantsTest, RemovalSendsProcessesToTheRulesAndDefault) {
  reload({{"a", {}}}, {by_command("a", "train")});
  make("b");
  tenants.add_process(identity(10, "train"));
  tenants.add_process(identity(11, "bash"));
  attach(10, "b");
  attach(11, "b");
  attach(12, "b");
  ASSERT_TRUE(tenants.remove("b"));
  EXPECT_EQ(name_of(10), "a");
  EXPECT_EQ(name_of(11), "default");
  EXPECT_THAT(tenants.attached_without_gpu(), IsEmpty());
  ASSERT_TRUE(tenants.remove("a"));
  EXPECT_EQ(name_of(10), "default") << "its rule names no tenant now";
  make("a");
  EXPECT_EQ(name_of(10), "a") << "and one again";
}

TEST_F(TenantsTest, ATransientTenantGoesWithItsLastProcess) {
  const std::vector<Setting> settings = {{"weight", "300"}};
  const auto slot = tenants.create_transient(id(50), settings);
  ASSERT_TRUE(slot);
  EXPECT_EQ(get("run-50").settings.weight, 300U);
  tenants.add_process(identity(51, "x", {id(50)}));
  tenants.end_process(id(50));
  EXPECT_EQ(name_of(51), "run-50");
  tenants.end_process(id(51));
  EXPECT_EQ(tenants.find("run-50"), std::nullopt);
  EXPECT_EQ(tenants.at(*slot), nullptr);
}

TEST_F(TenantsTest, ARunInsideARunGetsATenantOfItsOwn) {
  ASSERT_TRUE(tenants.create_transient(id(50), {}));
  ASSERT_TRUE(tenants.create_transient(id(50), {}));
  EXPECT_EQ(tenants.find("run-50"), std::nullopt) << "its only process has moved on";
  EXPECT_EQ(name_of(50), "run-50.2");
  const std::vector<Setting> bad = {{"weight", "0"}};
  EXPECT_FALSE(tenants.create_transient(id(60), bad));
  EXPECT_EQ(tenants.find("run-60"), std::nullopt);
}

TEST_F(TenantsTest, ReloadSetsWhatTheFileNamesAndKeepsTheRestOfRunTime) {
  reload({{"a", {{"weight", "300"}}}});
  const std::vector<Setting> changes = {{"weight", "500"}, {"max", "30%"}};
  ASSERT_TRUE(tenants.set("a", changes, false));
  EXPECT_EQ(get("a").settings.weight, 500U);

  reload({{"a", {{"weight", "200"}}}});
  EXPECT_EQ(get("a").settings.weight, 200U);
  EXPECT_EQ(get("a").settings.cap->quota, 30ms);

  reload({});
  EXPECT_EQ(get("a").settings.weight, 100U);
  EXPECT_EQ(get("a").settings.cap->quota, 30ms);
}

TEST_F(TenantsTest, AKeyThatLeavesTheFileIsDefaultAgain) {
  reload({{"default", {{"weight", "7"}, {"max", "50%"}}}});
  reload({{"default", {{"weight", "7"}}}});
  EXPECT_EQ(get("default").settings.weight, 7U);
  EXPECT_EQ(get("default").settings.cap, std::nullopt);
  reload({});
  EXPECT_EQ(get("default").settings, TenantSettings());
}

TEST_F(TenantsTest, ATenantOfTheFileGoesWithItAndOneOfRunTimeStays) {
  make("by-hand");
  reload({{"a", {}}, {"b", {}}}, {by_command("a", "x")});
  tenants.add_process(identity(10, "x"));
  EXPECT_EQ(name_of(10), "a");
  const auto slot_of_b = tenants.find("b");
  reload({{"b", {}}});
  EXPECT_EQ(tenants.find("a"), std::nullopt);
  EXPECT_EQ(tenants.find("b"), slot_of_b);
  EXPECT_NE(tenants.find("by-hand"), std::nullopt);
  EXPECT_EQ(name_of(10), "default");
}

TEST_F(TenantsTest, ReloadMovesProcessesByTheNewRulesButNotAttachedOnes) {
  make("mine");
  tenants.add_process(identity(10, "x"));
  tenants.add_process(identity(11, "x"));
  attach(11, "mine");
  reload({{"a", {}}}, {by_command("a", "x")});
  EXPECT_EQ(name_of(10), "a");
  EXPECT_EQ(name_of(11), "mine");
}

TEST_F(TenantsTest, FreezingIsOfATenantThatExists) {
  EXPECT_FALSE(tenants.set_frozen("a", true));
  make("a");
  ASSERT_TRUE(tenants.set_frozen("a", true));
  EXPECT_TRUE(get("a").is_frozen_by_user);
}

TEST_F(TenantsTest, EveryChangeRaisesTheGeneration) {
  const std::function<void()> changes[] = {
      [&] { make("a"); },
      [&] { tenants.add_process(identity(10, "x")); },
      [&] { attach(10, "a"); },
      [&] { ASSERT_TRUE(tenants.set_frozen("a", true)); },
      [&] { reload({}); },
      [&] { ASSERT_TRUE(tenants.remove("a")); },
      [&] { tenants.end_process(id(10)); },
  };
  for (const auto& change : changes) {
    const uint64_t before = tenants.generation();
    change();
    EXPECT_GT(tenants.generation(), before) << "change " << &change - changes;
  }
  const uint64_t last = tenants.generation();
  tenants.end_process(id(10));
  EXPECT_EQ(tenants.generation(), last) << "nothing changed";
}

}  // namespace
}  // namespace gpushare
