// SPDX-License-Identifier: Apache-2.0
#include "tools/view/plain_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

Status status_with_limits() {
  Status status{.snapshot = fake_snapshot({}, Time{}),
                .health = {AgentHealth::State::kLive, {}},
                .taken = Time{}};
  status.snapshot.tenants[1].record.memory_max_bytes = uint64_t{100} << 20;
  status.snapshot.tenants[2].record.sm_percent = 50;
  return status;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TenantLines, WhatHasNoEffectIsMarkedAndExplained) {
  const Screen screen{.width = 200};
  const Status status = status_with_limits();
  const std::string plain = text_of(tenant_lines(status, screen));
  EXPECT_TRUE(plain.contains(" 100M ")) << plain;
  EXPECT_FALSE(plain.contains("!"));
  const std::string marked =
      text_of(tenant_lines(status, screen, {{"memory_max", "no module"}, {"slo_us", "no policy"}}));
  EXPECT_TRUE(marked.contains(" 100M! ")) << marked;
  EXPECT_FALSE(marked.contains("50!")) << "it binds";
  EXPECT_FALSE(marked.contains("\n!")) << "each line is a tenant's";
  EXPECT_EQ(text_of(mark_lines(status, screen, {{"memory_max", "no module"}, {"slo_us", "none"}})),
            "! memory_max does not bind: no module\n")
      << "nobody sets the other one";
}

TEST(TenantLines, OneAboveOthersIsShownWithWhatTheyHave) {
  Status status = status_with_limits();
  auto& tenants = status.snapshot.tenants;
  tenants.resize(1);
  uint32_t slot = 5;
  for (const char* name : {"team/b", "team-2", "team", "team/a"}) {
    auto& tenant = tenants.emplace_back(slot++, TenantRecord{}).record;
    std::strncpy(tenant.name, name, sizeof tenant.name - 1);
    tenant.process_count = slot;
    for (TenantGpuUse& use : tenant.gpu) use.share_permille = kUnknown32;
    if (tenant.name != std::string_view("team")) tenant.gpu[0].share_permille = 100 * slot;
  }
  const std::string text = text_of(tenant_lines(status, {.width = 200}));
  std::vector<std::string> names;
  for (const char* name : {"\nteam ", "\nteam/a ", "\nteam/b ", "\nteam-2 "}) {
    ASSERT_TRUE(text.contains(name)) << name << text;
    names.push_back(text.substr(text.find(name), 160));
  }
  EXPECT_TRUE(text.find("\nteam ") < text.find("\nteam/a ") &&
              text.find("\nteam/a ") < text.find("\nteam/b ") &&
              text.find("\nteam/b ") < text.find("\nteam-2 "))
      << text;
  EXPECT_TRUE(names[0].contains(" 150.0% ")) << text;  // 60 and 90
  EXPECT_TRUE(names[0].contains(" 23 ")) << text;      // 8, 6 and 9
  EXPECT_TRUE(names[1].contains(" 90.0% ")) << text;
}

TEST(TenantLines, TurnsAreShownWhereThereAreAny) {
  const Screen screen{.width = 200};
  Status status = status_with_limits();
  status.snapshot.tenants[1].record.turns = 12;
  status.snapshot.tenants[1].record.held_ns = 3'400'000'000;
  const std::string text = text_of(tenant_lines(status, screen));
  EXPECT_TRUE(text.contains(" TURNS ")) << text;
  EXPECT_TRUE(text.contains(" 12 ")) << text;
  EXPECT_TRUE(text.contains(" 3.4s ")) << text;
}

TEST(StatusLines, AGpuSaysItsPolicyAndTheGapsOfItsTurns) {
  const Screen screen{.width = 200};
  Status status = status_with_limits();
  GpuRecord& gpu = status.snapshot.gpus[0];
  std::string("srtf").copy(gpu.policy, sizeof gpu.policy);
  EXPECT_FALSE(text_of(status_lines(status, screen)).contains("GAP"));
  gpu.gaps = 5;
  gpu.gap_p50_us = 150;
  gpu.gap_p99_us = 730;
  const std::string text = text_of(status_lines(status, screen));
  EXPECT_TRUE(text.contains(" srtf ")) << text;
  EXPECT_TRUE(text.contains("150us/730us")) << text;
}

TEST(StatusLines, TheChosenProcessesAreShownInTheOrderAskedFor) {
  Status status = status_with_limits();
  status.snapshot = fake_snapshot({.gpus = 2, .processes = 7}, Time{});
  const auto shown = [&](const RowChoice& choice) {
    const std::string text = text_of(status_lines(status, {.width = 200}, choice));
    std::vector<size_t> places;
    for (int pid = 4000; pid < 4007; ++pid) places.push_back(text.find(std::to_string(pid)));
    return places;
  };
  EXPECT_LT(shown({})[2], shown({})[1]) << "by GPU";
  EXPECT_TRUE(std::ranges::is_sorted(shown({.sort = Field::kPid})));
  EXPECT_LT(shown({.sort = Field::kMemory})[6], shown({.sort = Field::kMemory})[0]);
  const auto filtered = shown({.filter = "PID-4003"});
  EXPECT_NE(filtered[3], std::string::npos);
  EXPECT_EQ(std::ranges::count(filtered, std::string::npos), 6);
  EXPECT_TRUE(text_of(status_lines(status, {.width = 200}, {.filter = "nobody"}))
                  .contains("nothing matches the filter"));
}

TEST(StatusLines, OfADeadAgentNobodySaysThatNothingRuns) {
  Status status;
  status.health = {AgentHealth::State::kGone, std::chrono::seconds(5)};
  for (const std::string& text :
       {text_of(status_lines(status, {})), text_of(tenant_lines(status, {}))}) {
    EXPECT_TRUE(text.starts_with("gpushared: gone; last seen 5 s ago")) << text;
    EXPECT_TRUE(text.contains("this stops no program")) << text;
    for (const char* claim : {"no GPU is known", "no process", "no tenants"})
      EXPECT_FALSE(text.contains(claim)) << text;
  }
}

TEST(TenantLines, WithoutAGpuNobodySaysThatThereAreNoTenants) {
  Status status = status_with_limits();
  status.snapshot.tenants.clear();
  EXPECT_EQ(text_of(tenant_lines(status, {})), "no tenants are known\n");
  status.snapshot.gpus.clear();
  EXPECT_EQ(text_of(tenant_lines(status, {})), "no GPU is known, so tenants are not shown\n");
}

}  // namespace
}  // namespace gpushare
