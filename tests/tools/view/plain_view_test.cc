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
