// SPDX-License-Identifier: Apache-2.0
// docs/json.md names every member that --json prints, and no others.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "shmctl/plane/status_json.h"
#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/report/output.h"
#include "tools/view/queue_view.h"

namespace gpushare {
namespace {

using Json = nlohmann::json;
using Names = std::set<std::string>;

// What stands in backticks in the first column of the table below "### SECTION".
Names described(const std::string& section) {
  std::istringstream page(TempDir::read("docs/json.md"));
  Names names;
  bool is_here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) is_here = line == "### " + section;
    if (!is_here || !line.starts_with("| `")) continue;
    std::istringstream column(line.substr(2, line.find(" | ", 2) - 2));
    for (std::string skipped, name;
         std::getline(column, skipped, '`') && std::getline(column, name, '`');)
      names.insert(name);
  }
  return names;
}

// The members of an object, or of the first object of a list.
Names members(const Json& json) {
  Names names;
  if (json.is_array() && json.empty()) return names;
  for (const auto& [name, value] : (json.is_array() ? json[0] : json).items()) names.insert(name);
  return names;
}

TEST(JsonPage, DescribesWhatStatusPrints) {
  const Json status = Json::parse(status_json(fake_snapshot(
      {.gpus = 1, .processes = 7, .has_targets = true, .has_waiting = true}, Time{})));
  EXPECT_EQ(members(status),
            (Names{"agent", "last_ending", "gpus", "tenants", "processes", "waiting"}));
  for (const auto& [section, value] : status.items())
    EXPECT_EQ(described(section), members(value))
        << section << ": run the tests in the source folder";
  EXPECT_EQ(described("tenants.gpus"), members(status["tenants"][0]["gpus"]));
}

TEST(JsonPage, DescribesWhatQueuePrints) {
  const Json queue = Json::parse(queue_json(
      fake_snapshot({.gpus = 1, .processes = 7, .has_jobs = true, .has_waiting = true}, Time{})));
  ASSERT_FALSE(queue["jobs"].empty());
  EXPECT_EQ(described("queue.gpus"), members(queue["gpus"]));
  EXPECT_EQ(described("queue.jobs"), members(queue["jobs"]));
  EXPECT_EQ(described("queue.waiting"), members(queue["waiting"]));
}

TEST(JsonPage, DescribesWhatDoctorPrints) {
  const ToolResult said =
      run_tool("gpushare", {"doctor", "--json", "--socket", "/nonexistent"}, {});
  const Json doctor = Json::parse(said.out);
  EXPECT_EQ(members(doctor), (Names{"checks", "agent_checks", "limits"}));
  EXPECT_EQ(described("doctor.checks"), members(doctor["checks"]));
  EXPECT_EQ(described("doctor.limits"), members(doctor["limits"]));
}

TEST(JsonPage, DescribesWhatReportAndVersionPrint) {
  constexpr WallSeconds kSince = 1'800'000'000;
  UsageHistory history{.step = 10, .since = kSince, .until = kSince + 10};
  UsageSample& sample = history.samples[kSince];
  sample.watched_ms = 10'000;
  sample.amounts[{.tenant = "a", .uid = 0, .gpu = 0, .priority = 2}] = {.used_ms = 7500};
  history.jobs.push_back(
      {.job = {.name = "run-1", .command = "a", .tenant = "a"}, .amounts = {.used_ms = 7500}});
  history.freezes.push_back(
      {.job = {.name = "run-1", .command = "a", .tenant = "a"}, .reason = "cap"});
  history.gpus[0] = {.uuid = "GPU-1", .name = "a GPU"};
  const Json report =
      Json::parse(report_json(summarize(history, [](int64_t) { return std::string("root"); })));
  EXPECT_EQ(described("report"), members(report));
  for (const char* list : {"tenants", "jobs", "freezes", "gpus"})
    EXPECT_EQ(described(std::string("report.") + list), members(report[list])) << list;
  Names of_user = described("report.tenants");
  of_user.erase("tenant");
  of_user.insert("user");
  EXPECT_EQ(of_user, members(report["users"]));
  EXPECT_EQ(described("report.tenants"), members(report["high"]));
  EXPECT_EQ(described("version"),
            members(Json::parse(run_tool("gpushare", {"version", "--json"}).out)));
}

}  // namespace
}  // namespace gpushare
