// SPDX-License-Identifier: Apache-2.0
// Tests what an operator sees of tenants with target times.
#include <gtest/gtest.h>

#include <set>

#include "shmctl/shim/slot.h"
#include "tests/tools/support/fake_plane.h"
#include "tools/view/plain_view.h"
#include "tools/view/slo_view.h"

namespace gpushare {
namespace {

Status status_with(const TenantGpuUse& use) {
  Status status;
  status.snapshot = fake_snapshot({.gpus = 1, .processes = 1}, Time{});
  status.snapshot.tenants[0].record.gpu[0] = use;
  return status;
}

std::string text_of(const Status& status, size_t width = 140) {
  std::string text;
  for (const std::string& line : status_lines(status, {.width = width})) text += line + "\n";
  return text;
}
std::string text_of(const TenantGpuUse& use, size_t width = 140) {
  return text_of(status_with(use), width);
}

TenantGpuUse starved() {
  TenantGpuUse use = use_with_target(SloState::kStarved, 48, 20'000, 31'000, 40'000, 32'258);
  use.sms_needed = 80;
  return use;
}

TEST(SloView, SaysWhyATenantHasWhatItHas) {
  const std::string text = text_of(starved());
  for (const char* part : {"20.0ms", "31.0ms", "40.0ms", "32.3", "48/48", "announced 100%",
                           "not enough SMs: needs 80"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(SloView, WhoSharesItsSmsSaysWithHowMany) {
  TenantGpuUse use = starved();
  use.sms_entitled = use.sms_in_use = 104;
  use.sms_sharers = 12;
  use.sms_needed = 120;
  const std::string text = text_of(use);
  EXPECT_NE(text.find("104/104 by 12"), std::string::npos) << text;
  EXPECT_NE(text.find("not enough SMs: the 12 need 120"), std::string::npos) << text;
  use.slo_state = SloState::kRest;
  EXPECT_EQ(slo_reason(use), "no target: shares what the others leave");
  const Status status = status_with(use);
  EXPECT_EQ(parts_text(status.snapshot.tenants[0].record, status.snapshot), "104/104 by 12");
}

TEST(SloView, ASetOfItsOwnIsNotCalledShared) {
  for (const uint32_t sharers : {kUnknown32, 1U}) {
    TenantGpuUse use = starved();
    use.sms_sharers = sharers;
    EXPECT_EQ(sms_text(use), "48/48");
    EXPECT_EQ(slo_reason(use), "not enough SMs: needs 80");
    EXPECT_EQ(text_of(use).find(" by "), std::string::npos);
  }
}

TEST(SloView, NoNumberIsCutInEightyColumns) {
  TenantGpuUse use = starved();
  for (const uint32_t sharers : {1U, 12U}) {
    use.sms_sharers = sharers;
    const std::string text = text_of(use, 80);
    for (const char* part : {"20.0ms", "31.0ms", "40.0ms", "32.3", "not enough SMs"})
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    EXPECT_NE(text.find(sms_text(use) + " "), std::string::npos) << text;
  }
}

TEST(SloView, UnknownIsShownAsUnknown) {
  const std::string text = text_of({.slo_state = SloState::kUnmeasured, .slo_us = 5'000});
  EXPECT_NE(text.find("?/?"), std::string::npos) << text;
  EXPECT_NE(text.find("no iterations to measure yet"), std::string::npos);
}

TEST(SloView, WithoutSuchAPolicyThereIsNoTable) {
  EXPECT_EQ(text_of(TenantGpuUse{}).find("WHY"), std::string::npos);
}

TEST(SloView, HowAGpuIsSharedIsSaidWhereNotAllTakeTurns) {
  Status status = status_with(starved());
  EXPECT_EQ(text_of(status).find("SHARING"), std::string::npos);
  status.snapshot.gpus[0].sharing = GpuSharing::kSlo;
  EXPECT_NE(text_of(status).find("SHARING"), std::string::npos) << text_of(status);
  EXPECT_NE(text_of(status).find(" slo\n"), std::string::npos) << text_of(status);
}

// What passes within milliseconds is not shown.
TEST(SloView, AProgramThatStaysOnOtherSmsIsNamedWithTheReason) {
  std::set<std::string> reasons;
  for (const ShimFollows follows : {ShimFollows::kPauses, ShimFollows::kOwnContexts,
                                    ShimFollows::kNoRoom, ShimFollows::kRefused}) {
    TenantGpuUse use = starved();
    use.sms_follows = static_cast<uint32_t>(follows);
    reasons.insert(obstacle_text(use));
    const std::string line = "stays on its former SMs of GPU 0: " + obstacle_text(use);
    EXPECT_NE(text_of(use).find(line), std::string::npos) << text_of(use);
  }
  EXPECT_EQ(reasons.size(), 4U);
  for (const ShimFollows follows :
       {ShimFollows::kUnknown, ShimFollows::kFollows, ShimFollows::kWaitsForRest}) {
    TenantGpuUse use = starved();
    use.sms_follows = static_cast<uint32_t>(follows);
    EXPECT_EQ(text_of(use).find("stays"), std::string::npos);
  }
}

TEST(SloView, EveryStateHasItsReason) {
  std::set<std::string> reasons;
  for (uint32_t state = 1; state <= static_cast<uint32_t>(SloState::kEven); ++state) {
    TenantGpuUse use = starved();
    use.latency_us = 10'000;
    use.slo_state = static_cast<SloState>(state);
    reasons.insert(slo_reason(use));
  }
  EXPECT_EQ(reasons.size(), static_cast<size_t>(SloState::kEven));
  EXPECT_FALSE(reasons.contains("?"));
}

TEST(SloView, APhaseIsShownWhereThereIsOne) {
  TenantGpuUse use = starved();
  use.phase = static_cast<uint32_t>(ShimPhase::kDecode);
  EXPECT_NE(text_of(use).find("PHASE"), std::string::npos);
  EXPECT_NE(text_of(use).find("decode"), std::string::npos);
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
