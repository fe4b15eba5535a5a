// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/roster_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "sched/tenants/tenants.h"

namespace gpushare {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ProcessId id(pid_t pid) { return {pid, static_cast<uint64_t>(1000 + pid)}; }

// What an agent with this region lists, and the next one with what was parsed of it.
class RosterText : public ::testing::Test {
 protected:
  void set(std::string_view name, std::vector<Setting> settings) {
    ASSERT_TRUE(tenants_.set(name, settings, /*create=*/true));
  }
  std::string text() const { return roster_text(roster_.copy(), "this boot"); }
  // Puts what the text says into another region; slots may be others there.
  std::vector<std::string> take(const std::string& text, const std::string& boot = "this boot") {
    const auto parsed = parse_roster(text, boot);
    if (!parsed) {
      ADD_FAILURE() << parsed.error().message();
      return {};
    }
    next_region_ = std::make_unique<Region>();
    next_roster_ = std::make_unique<Roster>(*next_region_);
    for (const auto& [slot, tenant] : parsed->roster.tenants)
      next_roster_->put_tenant(slot, tenant);
    for (const RosterProcess& process : parsed->roster.processes)
      EXPECT_TRUE(next_roster_->put_process(process));
    for (const auto& [cgroup, slot] : parsed->roster.scopes)
      EXPECT_TRUE(next_roster_->put_scope(cgroup, slot));
    next_ = std::make_unique<Tenants>(next_roster_.get());
    return parsed->left_out;
  }
  const Tenant& next(std::string_view name) const { return *next_->at(next_->find(name).value()); }
  std::string next_tenant_of(pid_t pid) const { return next_->at(next_->tenant_of(id(pid)))->name; }

  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Roster roster_{*region_};
  Tenants tenants_{&roster_};
  std::unique_ptr<Region> next_region_;
  std::unique_ptr<Roster> next_roster_;
  std::unique_ptr<Tenants> next_;
};

TEST_F(RosterText, HasAllThatWasSet) {
  std::vector<Setting> all;
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"weight", "70"},
                                                                  {"max", "20%"},
                                                                  {"priority", "high"},
                                                                  {"memory_max", "3G"},
                                                                  {"sm_percent", "40"},
                                                                  {"slo_us", "500"}})
    all.push_back({key, value});
  set("gone", {});
  set("batch", all);
  set("default", {{"weight", "30"}});
  ASSERT_TRUE(tenants_.remove("gone"));
  ASSERT_TRUE(tenants_.set_frozen("batch", true));
  ASSERT_TRUE(tenants_.attach(id(10), "batch"));
  ASSERT_TRUE(tenants_.set_frozen(id(11), true));
  ASSERT_TRUE(tenants_.create_transient(id(12), {}));
  const auto run = tenants_.begin_run(id(13), Time{});
  ASSERT_TRUE(tenants_.attach_scope("/a b/\xC3\xA9.scope", "batch"));

  EXPECT_THAT(take(text()), IsEmpty()) << text();
  EXPECT_EQ(next("batch").settings, tenants_.at(*tenants_.find("batch"))->settings);
  EXPECT_EQ(next("batch").at_run_time.size(), all.size()) << "and nothing else";
  EXPECT_TRUE(next("batch").is_kept);
  EXPECT_TRUE(next("batch").is_frozen_by_user);
  EXPECT_EQ(next("default").settings.weight, 30u);
  EXPECT_EQ(next_->find("default"), kDefaultTenant);
  EXPECT_EQ(next_tenant_of(10), "batch");
  EXPECT_TRUE(next_->is_frozen(id(11)));
  EXPECT_TRUE(next("run-12").is_transient);
  EXPECT_EQ(next_tenant_of(12), "run-12");
  EXPECT_EQ(next_->run_of(id(13)).number, *run);
  EXPECT_THAT(next_->scopes(), ElementsAre("/a b/\xC3\xA9.scope"));
  EXPECT_EQ(next_->slots().size(), tenants_.slots().size());
  EXPECT_EQ(roster_text(next_roster_->copy(), "this boot"), text()) << "the slots' order is kept";
}

TEST_F(RosterText, SettingsOfOtherVersionsAreLeftOutAlone) {
  const auto left_out = take(R"({"format": 1, "boot": "this boot", "later": [1], "tenants": [
      {"name": "a", "kept": true, "sparkling": true, "settings": {"weight": "70", "colour": "red"}},
      {"name": "b", "kept": true, "settings": {"colour": "blue", "weight": "0", "max": "30%"}},
      {"name": "../c"}, 7, {"name": "a"}],
      "processes": [{"pid": 10, "start_ticks": 1010, "tenant": "b"}, {"pid": "x"},
                    {"pid": -4, "start_ticks": 1}, {"pid": 11, "start_ticks": 5, "tenant": "c"}],
      "scopes": [{"cgroup": "/x", "tenant": "c"}, {"cgroup": "/y", "tenant": "b"}]})");
  EXPECT_EQ(next("a").settings.weight, 70u);
  EXPECT_EQ(next("b").settings.weight, TenantSettings{}.weight);
  EXPECT_TRUE(next("b").settings.cap);
  EXPECT_EQ(next_tenant_of(10), "b");
  EXPECT_THAT(next_->scopes(), ElementsAre("/y"));
  EXPECT_THAT(
      left_out,
      ElementsAre(HasSubstr("no setting 'colour'"), HasSubstr("weight: '0'"), HasSubstr("../c"),
                  HasSubstr("tenant is not understood"), HasSubstr("two tenants 'a'"),
                  HasSubstr("process is not understood"), HasSubstr("'pid' is -4"),
                  HasSubstr("no tenant 'c'"), HasSubstr("no tenant 'c'")));
}

TEST_F(RosterText, AfterAnotherStartOfTheMachineAPidIsSomebodyElses) {
  set("batch", {{"weight", "70"}});
  ASSERT_TRUE(tenants_.attach(id(10), "batch"));
  EXPECT_THAT(take(text(), "another boot"), ElementsAre(HasSubstr("started again")));
  EXPECT_EQ(next("batch").settings.weight, 70u);
  EXPECT_EQ(next_tenant_of(10), "default");
}

TEST_F(RosterText, WhatIsNoSuchTextIsAnError) {
  set("batch", {{"weight", "70"}});
  const std::string whole = text();
  for (std::size_t length = 0; length + 2 < whole.size(); length += 7)
    EXPECT_FALSE(parse_roster(whole.substr(0, length), "this boot")) << length;
  for (const char* other :
       {"[]", "7", R"({"format": 2})", R"({"format": 1, "tenants_in_sysfs": 3})"})
    EXPECT_EQ(parse_roster(other, "this boot").error().code, std::errc::invalid_argument) << other;
  EXPECT_TRUE(parse_roster(R"({"format": 1})", "this boot"));
}

}  // namespace
}  // namespace gpushare
