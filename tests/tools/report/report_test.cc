// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/report/moment.h"
#include "tools/report/output.h"

namespace gpushare {
namespace {

constexpr WallSeconds kNow = 1'800'000'000;

TEST(ReportMoment, IsReadInEachForm) {
  EXPECT_EQ(parse_moment("now", kNow), kNow);
  EXPECT_EQ(parse_moment("90s", kNow), kNow - 90);
  EXPECT_EQ(parse_moment("24h", kNow), kNow - 86'400);
  EXPECT_EQ(parse_moment("2w", kNow), kNow - 1'209'600);
  EXPECT_EQ(parse_moment("@1700000000", kNow), 1'700'000'000);
  const auto minute = parse_moment("2026-11-23 10:30", kNow);
  ASSERT_TRUE(minute);
  EXPECT_EQ(wall_text(*minute), "2026-11-23 10:30");
  for (const char* wrong : {"", "h", "-1h", "24", "24 h", "99999999999w", "2026-13-01", "@", "@-1",
                            "2026-11-23 10:30 or so"})
    EXPECT_FALSE(parse_moment(wrong, kNow)) << wrong;
}

UsageHistory two_tenants(const std::string& name) {
  UsageHistory history{.step = 10, .since = kNow, .until = kNow + 30};
  for (int i : {0, 2}) {
    UsageSample& sample = history.samples[kNow + 10 * i];
    sample.watched_ms = 10'000;
    sample.amounts[{.tenant = name, .uid = 1000, .gpu = 0, .priority = 2}] = {.used_ms = 7500,
                                                                              .entitled_ms = 7000};
    sample.amounts[{.tenant = "b", .uid = 1000, .gpu = 0}] = {.used_ms = 2500};
  }
  history.jobs.push_back({.job = {.name = "run-1", .command = name, .tenant = name, .uid = 1000},
                          .amounts = {.used_ms = 15'000}});
  history.freezes.push_back({.start_ms = kNow * 1000,
                             .duration_ms = 2000,
                             .job = {.name = "run-1", .command = name, .tenant = name},
                             .reason = "cap"});
  history.gpus[0] = {.uuid = "GPU-1", .name = name};
  return history;
}

std::string user(int64_t uid) { return uid == 1000 ? "alice" : "?"; }

TEST(ReportSummary, SumsByTenantAndUserAndKeepsGapsOpen) {
  const UsageHistory history = two_tenants("a");
  const ReportSummary summary = summarize(history, user);
  ASSERT_EQ(summary.tenants.size(), 2U);
  EXPECT_EQ(summary.tenants[0].name, "a");
  EXPECT_DOUBLE_EQ(summary.tenants[0].share, 0.75);
  EXPECT_DOUBLE_EQ(summary.tenants[0].target.value_or(0), 0.7);
  ASSERT_EQ(summary.users.size(), 1U);
  EXPECT_EQ(summary.users[0].name, "alice");
  EXPECT_EQ(summary.users[0].amounts.used_ms, 20'000U);
  ASSERT_EQ(summary.high.size(), 1U);
  ASSERT_EQ(summary.gpus.size(), 1U);
  EXPECT_DOUBLE_EQ(summary.gpus[0].busy, 1);
  const std::vector<double> expected{0.75, -1, 0.75};
  EXPECT_EQ(summary.gpus[0].shares[0].second, expected);
}

TEST(ReportPage, NamesCannotBeMarkup) {
  const std::string nasty = "<script>alert(1)</script>\"'&\x1b[2J\xff";
  const UsageHistory history = two_tenants(nasty);
  const ReportSummary summary = summarize(history, [&](int64_t) { return nasty; });
  const std::string page = report_page(summary, nasty);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(report_json(summary)));
}

TEST(ReportPage, NeedsNothingFromElsewhere) {
  const UsageHistory history = two_tenants("a");
  const std::string page = report_page(summarize(history, user), "host");
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
}

TEST(ReportPage, SaysThatThereIsNothing) {
  const UsageHistory history{.step = 10, .since = kNow, .until = kNow + 30};
  const std::string page = report_page(summarize(history, user), "host");
  EXPECT_NE(page.find("Nothing was recorded"), std::string::npos);
}

TEST(ReportSummary, NamesWhatAHistoryHasWhereSomethingElseIsAskedFor) {
  UsageHistory whole = two_tenants("team/a");
  whole.gpus[3] = {};
  const auto missing = [&](std::optional<uint32_t> gpu, std::optional<std::string> tenant) {
    return missing_from(whole, {.gpu = gpu, .tenant = std::move(tenant)});
  };
  EXPECT_EQ(missing({}, {}), "");
  EXPECT_EQ(missing(0, "b"), "");
  EXPECT_EQ(missing(3, "team"), "") << "it has others below it";
  EXPECT_EQ(missing(9, "b"), "--gpu: this history has no GPU 9; it has: 0, 3");
  EXPECT_EQ(missing({}, "b,team"),
            "--tenant: this history has no tenant 'b,team'; it has: b, team/a");
  EXPECT_EQ(missing({}, "team/b"),
            "--tenant: this history has no tenant 'team/b'; did you mean 'team/a'? it has: b, "
            "team/a");
  EXPECT_EQ(missing_from({}, {.tenant = "b"}),
            "--tenant: this history has no tenant 'b'; it has: none yet");
  for (int i = 0; i < 20; ++i) whole.jobs.emplace_back().job.tenant = "t" + std::to_string(i);
  EXPECT_TRUE(missing({}, "nosuch").ends_with(" and 10 more")) << missing({}, "nosuch");
}

TEST(ReportJson, SaysNullWhereNobodyLooked) {
  const UsageHistory history = two_tenants("a");
  const auto json = nlohmann::json::parse(report_json(summarize(history, user)));
  EXPECT_TRUE(json["gpus"][0]["shares"]["a"][1].is_null());
  EXPECT_DOUBLE_EQ(json["tenants"][0]["share"].get<double>(), 0.75);
  EXPECT_TRUE(json["tenants"][0]["iterations"].is_null());
  EXPECT_DOUBLE_EQ(json["tenants"][0]["target"].get<double>(), 0.7);
  EXPECT_TRUE(json["tenants"][1]["target"].is_null()) << "where jobs take turns there is none";
}

}  // namespace
}  // namespace gpushare
