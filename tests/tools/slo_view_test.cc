// SPDX-License-Identifier: Apache-2.0
// What an operator sees of tenants with target times.
#include <gtest/gtest.h>

#include <set>

#include "tests/tools/fake_plane.h"
#include "tools/plain_view.h"

namespace gpushare {
namespace {

Status status_with(const TenantGpuUse& use) {
  Status status;
  status.snapshot = fake_snapshot({.gpus = 1, .processes = 1}, Time{});
  status.snapshot.tenants[0].record.gpu[0] = use;
  return status;
}

std::string text_of(const TenantGpuUse& use) {
  std::string text;
  for (const std::string& line : status_lines(status_with(use), {.width = 140}))
    text += line + "\n";
  return text;
}

TenantGpuUse starved() {
  return {.sms_entitled = 48,
          .sms_in_use = 48,
          .slo_state = SloState::kStarved,
          .slo_us = 20'000,
          .latency_us = 31'000,
          .p99_us = 40'000,
          .iterations_per_ks = 32'258,
          .iteration_source = 2,
          .confidence_permille = 1000,
          .sms_needed = 80};
}

TEST(SloView, SaysWhyATenantHasWhatItHas) {
  const std::string text = text_of(starved());
  for (const char* part : {"20.0ms", "31.0ms", "40.0ms", "32.3", "48/48", "announced 100%",
                           "needs 80 SMs, there are not enough"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(SloView, UnknownIsShownAsUnknown) {
  const std::string text = text_of({.slo_state = SloState::kUnmeasured, .slo_us = 5'000});
  EXPECT_NE(text.find("?/?"), std::string::npos) << text;
  EXPECT_NE(text.find("no iterations to measure yet"), std::string::npos);
}

TEST(SloView, WithoutSuchAPolicyThereIsNoTable) {
  EXPECT_EQ(text_of({}).find("WHY"), std::string::npos);
}

TEST(SloView, EveryStateHasItsReason) {
  std::set<std::string> reasons;
  for (uint32_t state = 1; state <= static_cast<uint32_t>(SloState::kSampling); ++state) {
    TenantGpuUse use = starved();
    use.latency_us = 10'000;
    use.slo_state = static_cast<SloState>(state);
    reasons.insert(slo_reason(use));
  }
  EXPECT_EQ(reasons.size(), static_cast<size_t>(SloState::kSampling));
  EXPECT_FALSE(reasons.contains("?"));
}

TEST(SloView, WhoMissesItsTargetAtItsKneeIsTold) {
  TenantGpuUse use = starved();
  use.slo_state = SloState::kAtMost;
  EXPECT_EQ(slo_reason(use), "misses its target on the most it may have");
  use.sms_knee = 48;
  EXPECT_EQ(slo_reason(use), "misses its target, more SMs do not help");
}

}  // namespace
}  // namespace gpushare
