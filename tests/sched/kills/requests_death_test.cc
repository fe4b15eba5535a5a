// SPDX-License-Identifier: Apache-2.0
// The agent dies at an instruction in the middle of a request: of each tenant and each process the
// next agent has what was before or what is after it, and never anything else.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "tests/sched/kills/acknowledged.h"
#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

using test::seen_in;
using test::text_of;

ProcessId id(pid_t pid) { return {pid, static_cast<uint64_t>(1000 + pid)}; }

struct Request {
  const char* description;
  std::function<void(Tenants&)> make;
};

class RequestsDeath : public ::testing::TestWithParam<Request> {
 protected:
  // The agent that makes the request.
  void SetUp() override {
    roster_ = std::make_unique<Roster>(plane_.region());
    tenants_ = std::make_unique<Tenants>(roster_.get());
    const std::vector<Setting> settings{{"weight", "300"}, {"max", "20%"}};
    ASSERT_TRUE(tenants_->set("lab", settings, true));
    ASSERT_TRUE(tenants_->attach(id(1), "lab"));
    ASSERT_TRUE(tenants_->attach(id(2), "lab"));
    ASSERT_TRUE(tenants_->set_frozen(id(2), true));
    ASSERT_TRUE(tenants_->create_transient(id(3), settings));
  }
  // Of the roster's tables the first entries, which are all that is used here.
  struct Used {
    std::array<std::byte, 8 * sizeof(Slot<RosterTenant>)> tenants;
    std::array<std::byte, 16 * sizeof(Slot<RosterProcess>)> processes;
    bool operator==(const Used&) const = default;
  };
  static void* at(auto& table) { return static_cast<void*>(table); }
  Used used() {
    Used copy;
    std::memcpy(copy.tenants.data(), at(plane_.region().roster_tenants), sizeof copy.tenants);
    std::memcpy(copy.processes.data(), at(plane_.region().roster_processes), sizeof copy.processes);
    return copy;
  }
  // What the next agent has, a line for each tenant and process.
  std::set<std::string> next(const Used& left) {
    std::memcpy(at(next_region_->roster_tenants), left.tenants.data(), sizeof left.tenants);
    std::memcpy(at(next_region_->roster_processes), left.processes.data(), sizeof left.processes);
    Roster roster(*next_region_);
    Tenants tenants(&roster);
    tenants.drop_the_finished();
    std::istringstream text(text_of(seen_in(tenants, {id(1), id(2), id(3), id(4)})));
    std::set<std::string> all;
    for (std::string line; std::getline(text, line);) all.insert(line);
    return all;
  }

  TempPlane plane_;
  std::unique_ptr<Region> next_region_ = std::make_unique<Region>();
  std::unique_ptr<Roster> roster_;
  std::unique_ptr<Tenants> tenants_;
};

TEST_P(RequestsDeath, LeavesEachTenantAndProcessAsBeforeOrAsAfter) {
  Used last = used();
  const std::set<std::string> before = next(last);
  std::vector<std::set<std::string>> seen;  // each different state in which it may die
  SteppedChild agent(Stride::kInstruction, [&] { GetParam().make(*tenants_); });
  if (!agent.is_traced()) GTEST_SKIP() << "this build or machine cannot step single instructions";
  while (agent.step()) {
    const Used now = used();
    if (now == last) continue;
    last = now;
    seen.push_back(next(now));
  }
  GetParam().make(*tenants_);  // this process has not made it yet
  const std::set<std::string> after = next(used());
  EXPECT_FALSE(seen.empty()) << "the request writes something";
  EXPECT_NE(before, after);
  EXPECT_EQ(seen.back(), after);
  for (const std::set<std::string>& state : seen) {
    for (const std::string& line : state)
      EXPECT_TRUE(before.contains(line) || after.contains(line)) << line;
    for (const std::string& line : before)
      EXPECT_TRUE(!after.contains(line) || state.contains(line)) << "lost: " << line;
  }
  RecordProperty("instructions", static_cast<int>(agent.steps()));
}

const std::vector<Setting> kSettings{{"weight", "77"}, {"priority", "idle"}};

INSTANTIATE_TEST_SUITE_P(
    Each, RequestsDeath,
    ::testing::Values(
        Request{"MakesATenant", [](Tenants& t) { (void)t.set("web", kSettings, true); }},
        Request{"ChangesATenant", [](Tenants& t) { (void)t.set("lab", kSettings, false); }},
        Request{"MakesATransientTenant",
                [](Tenants& t) { (void)t.create_transient(id(4), kSettings); }},
        Request{"MovesAProcess", [](Tenants& t) { (void)t.attach(id(1), "default"); }},
        Request{"MovesTheLastOfATransientTenant", [](Tenants& t) { (void)t.attach(id(3), "lab"); }},
        Request{"FreezesATenant", [](Tenants& t) { (void)t.set_frozen("lab", true); }},
        Request{"FreezesAProcess", [](Tenants& t) { (void)t.set_frozen(id(4), true); }},
        Request{"ThawsAProcess", [](Tenants& t) { (void)t.set_frozen(id(2), false); }},
        Request{"EndsAProcess", [](Tenants& t) { t.end_process(id(3)); }},
        Request{"RemovesATenant", [](Tenants& t) { (void)t.remove("lab"); }},
        Request{"Forgets", [](Tenants& t) { t.forget(); }}),
    [](const auto& request) { return request.param.description; });

}  // namespace
}  // namespace gpushare
