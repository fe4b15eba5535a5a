// SPDX-License-Identifier: Apache-2.0
// What follows from a policy's line: that every policy keeps the promises of the seam, and that the
// manual and the example of a configuration say what the line says.
#include "sched/policies/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "tests/sched/support/policies.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string file(const char* path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class EveryPolicy : public testing::TestWithParam<const PolicyEntry*> {};
std::string name_of(const testing::TestParamInfo<const PolicyEntry*>& info) {
  return std::string(info.param->name);
}

std::vector<const PolicyEntry*> entries() {
  std::vector<const PolicyEntry*> all;
  for (const PolicyEntry& entry : test::every_policy()) all.push_back(&entry);
  return all;
}

TEST_P(EveryPolicy, HasAnEntryThatTheRestCanFollow) {
  const PolicyEntry& entry = *GetParam();
  EXPECT_THAT(std::string(entry.name), testing::MatchesRegex("[a-z]+"));
  EXPECT_LE(entry.name.size(), 15u) << "it must fit into the control plane and into sysfs";
  EXPECT_TRUE(entry.summary.ends_with('.'));
  EXPECT_EQ(find_policy(test::every_policy(), entry.name), &entry) << "no two have one name";
  const PolicyOptions defaults(entry.options);
  for (const PolicyOption& option : entry.options) {
    EXPECT_THAT(std::string(option.key), testing::MatchesRegex("[a-z_]+_(us|ms|s|percent)"));
    EXPECT_LE(option.least, option.otherwise);
    EXPECT_LE(option.otherwise, option.most);
    EXPECT_EQ(defaults[option.key], option.otherwise);
  }
  if (entry.check) EXPECT_FALSE(entry.check(defaults));
}

TEST_P(EveryPolicy, IsInTheManualAndInTheListing) {
  const PolicyEntry& entry = *GetParam();
  const std::string listing = describe_policies(std::span(&entry, 1));
  EXPECT_THAT(listing, HasSubstr(std::string(entry.name) + ": " + std::string(entry.summary)));
  const std::string manual = file("docs/gpushare.toml.5");
  EXPECT_THAT(manual, HasSubstr(".It Li " + std::string(entry.name) + "\n" +
                                std::string(entry.summary) + "\n"));
  const std::string example = file("sched/gpushare.toml.example");
  EXPECT_THAT(example, HasSubstr('"' + std::string(entry.name) + '"'));
  for (const PolicyOption& option : entry.options) {
    EXPECT_THAT(example, HasSubstr("# " + std::string(option.key) + " = "));
    EXPECT_THAT(manual,
                HasSubstr(".It Li " + std::string(option.key) +
                          " No = " + std::to_string(option.otherwise) + " Pq " +
                          std::to_string(option.least) + " to " + std::to_string(option.most)));
  }
}

// Random processes of random tenants come and go; whatever the policy makes of them, the plan keeps
// to the seam, and the same snapshots give the same plans.
TEST_P(EveryPolicy, KeepsToTheSeamWhateverComes) {
  const PolicyChoice choice(*GetParam());
  const GpuView gpu{.name = "GPU", .is_spatial = true};
  const auto policy = choice.make(gpu), twin = choice.make(gpu);
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<TenantView> tenants(6);
  for (uint32_t id = 0; id < tenants.size(); ++id) tenants[id].id = id;
  std::vector<ProcessView> processes;
  Time now{1s};
  for (int round = 0; round < 2000; ++round) {
    now += Nanos(below(50'000'000));
    if (below(4) == 0) {
      processes.clear();
      for (uint32_t id = 0; id < below(12); ++id) {
        ProcessView& process = processes.emplace_back();
        process.id = id;
        process.process = {static_cast<pid_t>(100 + id), 1};
        process.tenant = below(6);
        process.has_context = below(5) != 0;
        process.has_shim = below(2) == 0;
        process.can_control = below(6) != 0;
        process.is_frozen_by_user = below(8) == 0;
        process.came = now;
      }
    }
    for (TenantView& tenant : tenants) {
      tenant.has_shim = std::ranges::any_of(processes, [&](const ProcessView& process) {
        return process.tenant == tenant.id && process.has_shim;
      });
      tenant.priority = static_cast<Priority>(below(3));
      tenant.slo = below(2) == 0 ? 20ms : 0ms;
      tenant.phase = static_cast<TenantPhase>(below(4));
      tenant.groups = tenant.has_shim ? below(16) : 0;
    }
    for (ProcessView& process : processes) {
      process.wants_gpu = below(3) != 0;
      process.used = Nanos(below(1'000'000));
      process.phase = static_cast<ShimPhase>(below(3));
      process.last_launch = now - Nanos(below(20'000'000));
      if (process.has_shim)
        process.iterations = {.source = ShimSource::kAnnounced,
                              .confidence = 1000,
                              .ended = below(1000),
                              .busy_ns = below(1'000'000),
                              .latency_ns = below(1'000'000)};
    }
    const Snapshot snapshot{now, tenants, processes, gpu};
    const Plan plan = policy->plan(snapshot);
    EXPECT_EQ(plan.decisions, twin->plan(snapshot).decisions);
    std::set<uint32_t> decided, placed;
    for (const Decision& decision : plan.decisions) {
      EXPECT_TRUE(decided.insert(decision.process).second) << "one decision for a process";
      const auto process = std::ranges::find(processes, decision.process, &ProcessView::id);
      ASSERT_NE(process, processes.end());
      EXPECT_TRUE(process->has_context && process->can_control);
      if (process->can_plan()) {
        EXPECT_NE(decision.freeze, FreezeReason::kUser);
      }
    }
    for (const PlannedPartition& partition : plan.partitions) {
      EXPECT_GE(partition.groups, 1u);
      EXPECT_FALSE(partition.tenants.empty());
      for (const uint32_t tenant : partition.tenants) {
        EXPECT_TRUE(placed.insert(tenant).second) << "a tenant is in one partition";
        EXPECT_TRUE(tenants[tenant].has_shim);
      }
    }
    for (ProcessView& process : processes) {
      const auto decision = std::ranges::find(plan.decisions, process.id, &Decision::process);
      if (decision != plan.decisions.end())
        process.is_frozen = decision->freeze != FreezeReason::kNone;
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, testing::ValuesIn(entries()), name_of);

TEST(Policies, AreFoundByName) {
  EXPECT_EQ(test::every_policy().front().name, "fair") << "where no other is chosen";
  EXPECT_EQ(find_policy(test::every_policy(), "unfair"), nullptr);
}

TEST(Policies, AreTheSameWhenTheirOptionsAre) {
  const PolicyEntry& fair = *find_policy(test::every_policy(), "fair");
  PolicyChoice one(fair), other(fair);
  EXPECT_EQ(one, other);
  other.options.set("idle_turn_ms", 51);
  EXPECT_NE(one, other);
  EXPECT_NE(one, PolicyChoice(*find_policy(test::every_policy(), "slo")));
}

}  // namespace
}  // namespace gpushare
