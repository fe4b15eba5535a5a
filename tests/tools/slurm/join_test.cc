// SPDX-License-Identifier: Apache-2.0
// How steps come into their job's tenant, with an agent that has some tenants.
#include "tools/slurm/join.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/support/fake_agent.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/slurm/agent.h"

namespace gpushare {
namespace {

using TenantNames = std::set<std::string>;
using RequestLines = std::vector<std::string>;

constexpr int kJoinPatienceMs = 60'000;

// It answers as the real one does: without settings nothing is made, and nothing is made below a
// tenant that is not there.
class AgentOfTenants {
 public:
  // `next`: a tenant that another step makes after the first answer; empty: none does.
  AgentOfTenants(TenantNames tenants, std::string next)
      : tenants_(std::move(tenants)),
        next_(std::move(next)),
        agent_([this](const std::string& request) { return RequestLines{answer(request)}; }) {}

  std::string socket() const { return agent_.socket(); }
  RequestLines requests() const { return agent_.requests(); }

 private:
  std::string answer(const std::string& request) {
    const std::lock_guard lock(mutex_);
    const std::string key = R"("tenant":")";
    const size_t begin = request.find(key) + key.size();
    const std::string tenant = request.substr(begin, request.find('"', begin) - begin);
    const size_t slash = tenant.rfind('/');
    const bool has_above = slash == std::string::npos || tenants_.contains(tenant.substr(0, slash));
    if (has_above && request.find("settings") != std::string::npos) tenants_.insert(tenant);
    const bool is_there = tenants_.contains(tenant);
    if (!next_.empty()) tenants_.insert(std::exchange(next_, ""));
    return is_there ? R"({"ok":true})" : R"({"error":"there is no such tenant","ok":false})";
  }

  std::mutex mutex_;
  TenantNames tenants_;
  std::string next_;
  FakeAgent agent_;  // the last, as its threads use the others
};

std::string run_request(const std::string& tenant, const std::string& settings = "") {
  return R"({"op":"run","tenant":")" + tenant + "\"" +
         (settings.empty() ? "" : ",\"settings\":{" + settings + "}") + "}";
}

// Shards make a weight of 10 each.
gs_admin admin_at(const std::string& socket) {
  gs_admin admin{};
  char why[GS_WHY_SIZE];
  std::string words[] = {"shards=8", "socket=" + socket};
  char* pointers[] = {words[0].data(), words[1].data()};
  EXPECT_EQ(gs_parse_admin(&admin, 2, pointers, why), 0) << why;
  return admin;
}

struct StepRow {
  const char* about;
  TenantNames tenants;
  std::string made_meanwhile;
  const char* weight;  // that the step says; nullptr: none
  uint32_t shards;     // that it has
  gs_joined outcome;
  std::string tenant_or_why;
  RequestLines requests;
};

const StepRow kRows[] = {
    {"the first step makes the tenant",
     {},
     "",
     nullptr,
     4,
     GS_JOINED_FIRST,
     "slurm-7",
     {run_request("team/slurm-7"), run_request("slurm-7"),
      run_request("team/slurm-7", R"("weight":"40","priority":"normal")"),
      run_request("slurm-7", R"("weight":"40","priority":"normal")")}},
    {"below another one where there is one",
     {"team"},
     "",
     "30",
     4,
     GS_JOINED_FIRST,
     "team/slurm-7",
     {run_request("team/slurm-7"), run_request("slurm-7"),
      run_request("team/slurm-7", R"("weight":"30","priority":"normal")")}},
    {"a later step with fewer shards joins, whatever the job has said",
     {"slurm-7"},
     "",
     "40",
     1,
     GS_JOINED,
     "slurm-7",
     {run_request("team/slurm-7"), run_request("slurm-7")}},
    {"also below another one",
     {"team", "team/slurm-7"},
     "",
     "40",
     1,
     GS_JOINED,
     "team/slurm-7",
     {run_request("team/slurm-7")}},
    {"the first step has no more than its shards make",
     {},
     "",
     "40",
     1,
     GS_TOO_MUCH,
     "--gpu-weight=40 is more than this job may have: at most 10",
     {run_request("team/slurm-7"), run_request("slurm-7"), run_request("team/slurm-7"),
      run_request("slurm-7")}},
    {"another step is first by a moment",
     {"team"},
     "team/slurm-7",
     "40",
     1,
     GS_JOINED,
     "team/slurm-7",
     {run_request("team/slurm-7"), run_request("slurm-7"), run_request("team/slurm-7")}},
};

class SlurmJoin : public ::testing::TestWithParam<StepRow> {};

TEST_P(SlurmJoin, OnlyWhoMakesTheTenantIsChecked) {
  const StepRow& row = GetParam();
  const AgentOfTenants agent(row.tenants, row.made_meanwhile);
  const gs_admin admin = admin_at(agent.socket());
  gs_wish wish{};
  char why[GS_ANSWER_SIZE] = "";
  if (row.weight != nullptr) {
    ASSERT_EQ(gs_parse_option(&wish, GS_WEIGHT, row.weight, why), 0) << why;
  }
  const gs_step step{.admin = &admin,
                     .wish = &wish,
                     .given = {.shards = row.shards, .gpus = 1},
                     .names = {"team/slurm-7", "slurm-7"},
                     .count = 2};
  const char* tenant = "";
  EXPECT_EQ(gs_join(&step, kJoinPatienceMs, &tenant, why), row.outcome) << row.about << ": " << why;
  const bool is_in = row.outcome == GS_JOINED || row.outcome == GS_JOINED_FIRST;
  EXPECT_STREQ(is_in ? tenant : why, row.tenant_or_why.c_str()) << row.about;
  EXPECT_EQ(agent.requests(), row.requests) << row.about;
}

INSTANTIATE_TEST_SUITE_P(All, SlurmJoin, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return "row" + std::to_string(row.index); });

// Whether the job has a tenant is not known then.
TEST(SlurmJoinWithoutAnAgent, NothingIsChecked) {
  const TempDir folder;
  const gs_admin admin = admin_at(folder.at("agent.sock"));
  gs_wish wish{};
  wish.is_said[GS_WEIGHT] = true;
  wish.weight = 40;
  const gs_step step{.admin = &admin,
                     .wish = &wish,
                     .given = {.shards = 1, .gpus = 1},
                     .names = {"slurm-7"},
                     .count = 1};
  const char* tenant = "";
  char why[GS_ANSWER_SIZE] = "";
  EXPECT_EQ(gs_join(&step, kJoinPatienceMs, &tenant, why), GS_NOT_JOINED);
  EXPECT_NE(std::string(why).find("no agent"), std::string::npos) << why;
}

}  // namespace
}  // namespace gpushare
