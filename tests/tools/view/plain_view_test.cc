// SPDX-License-Identifier: Apache-2.0
#include "tools/view/plain_view.h"

#include <gtest/gtest.h>

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
  EXPECT_TRUE(marked.contains("\n! memory_max does not bind: no module\n"));
  EXPECT_FALSE(marked.contains("50!")) << "it binds";
  EXPECT_FALSE(marked.contains("no policy")) << "nobody sets it";
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

TEST(TenantLines, WithoutAGpuNobodySaysThatThereAreNoTenants) {
  Status status = status_with_limits();
  status.snapshot.tenants.clear();
  EXPECT_EQ(text_of(tenant_lines(status, {})), "no tenants are known\n");
  status.snapshot.gpus.clear();
  EXPECT_EQ(text_of(tenant_lines(status, {})), "no GPU is known, so tenants are not shown\n");
}

}  // namespace
}  // namespace gpushare
