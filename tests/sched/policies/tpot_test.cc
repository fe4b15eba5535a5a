// SPDX-License-Identifier: Apache-2.0
// The policy `tpot`, one decision after the other, and in whole runs against fixed shares.
#include "sched/policies/tpot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/sched/policies/token_world.h"
#include "tests/support/sanitized.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// A GPU of 16 groups, and tenants with one process each, whose iterations the test makes.
class TpotTest : public testing::Test {
 protected:
  static constexpr uint32_t kGroups = 16;

  uint32_t add(TenantPhase phase, Nanos target) {
    const auto id = static_cast<uint32_t>(tenants_.size());
    tenants_.push_back(
        {.id = id, .slo = target, .phase = phase, .has_shim = true, .groups = kGroups});
    processes_.push_back(
        {.id = id,
         .process = {static_cast<pid_t>(100 + id), 1},
         .tenant = id,
         .has_shim = true,
         .iterations = IterationsView{.source = ShimSource::kAnnounced, .confidence = 1000}});
    processes_.back().phase = phase == TenantPhase::kDecode    ? ShimPhase::kDecode
                              : phase == TenantPhase::kPrefill ? ShimPhase::kPrefill
                                                               : ShimPhase::kUnknown;
    return id;
  }
  IterationsView& said(uint32_t tenant) { return *processes_[tenant].iterations; }
  void launch(uint32_t tenant) { processes_[tenant].last_launch = now_; }
  // The plan of now; what it gives is what they have from then on.
  void step() {
    plan_ = policy_.plan({now_, tenants_, processes_, gpu_});
    for (const PlannedPartition& partition : plan_.partitions)
      tenants_[partition.tenants.front()].groups = partition.groups;
  }
  // So many steps of a tenant that decodes, each of so long; the agent looks after each.
  void decode(uint32_t tenant, int count, Nanos time) {
    for (int i = 0; i < count; ++i) {
      ++said(tenant).begun;
      now_ += time;
      ++said(tenant).ended;
      said(tenant).busy_ns += static_cast<uint64_t>(time.count());
      said(tenant).latency_ns += static_cast<uint64_t>(time.count());
      launch(tenant);
      for (const uint32_t other : at_work_) launch(other);
      step();
    }
  }
  // Of work that speeds up with the groups: 80 ms on one.
  void decode_linear(uint32_t tenant, int count) {
    for (int i = 0; i < count; ++i) decode(tenant, 1, Nanos(80ms) / tenants_[tenant].groups);
  }
  std::vector<uint32_t> groups() const {
    std::vector<uint32_t> all;
    for (const TenantView& tenant : tenants_) all.push_back(tenant.groups);
    return all;
  }
  SloState state(uint32_t tenant) const {
    return std::ranges::find(plan_.statuses, tenant, &SloStatus::tenant)->state;
  }
  uint64_t stop_of(uint32_t tenant) const {
    const auto decision = std::ranges::find(plan_.decisions, tenant, &Decision::process);
    return decision == plan_.decisions.end() ? 0 : decision->run_until;
  }

  const GpuView gpu_{.name = "GPU", .geometry = geometry_of(132), .is_spatial = true};
  TpotPolicy policy_{gpu_, {}};
  std::vector<TenantView> tenants_;
  std::vector<ProcessView> processes_;
  std::vector<uint32_t> at_work_;  // that launch all the time
  Time now_{10s};
  Plan plan_;
};

// 80 ms / 5 is 80 % of 20 ms.
TEST_F(TpotTest, TokensGetTheFewestGroupsAndPromptsTheRest) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  at_work_ = {prefill};
  launch(decode);
  step();
  EXPECT_EQ(groups(), (std::vector<uint32_t>{8, 8})) << "nothing is known: even";
  decode_linear(decode, 20);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 11}));
  EXPECT_EQ(state(decode), SloState::kMeets);
  EXPECT_EQ(state(prefill), SloState::kYields);
  EXPECT_EQ(stop_of(prefill), 0u);
}

TEST_F(TpotTest, WhoDoesNeitherGivesWayFirst) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  const uint32_t other = add(TenantPhase::kNone, 0s);
  at_work_ = {other};
  decode_linear(decode, 30);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 11})) << "there are no prompts";
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  at_work_ = {other, prefill};
  decode_linear(decode, 3);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 1, 10}));
  EXPECT_EQ(state(other), SloState::kRest);
}

TEST_F(TpotTest, WhileNobodyDecodesPromptsHaveAllButOneGroup) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  at_work_ = {prefill};
  said(decode).period_ns = 16'000'000;
  decode_linear(decode, 30);
  now_ += 31ms;
  step();
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 11})) << "two periods are not over";
  now_ += 2ms;
  step();
  EXPECT_EQ(groups(), (std::vector<uint32_t>{1, 15}));
  launch(decode);
  step();
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 11})) << "it has them back with its first launch";
  ++said(decode).begun;
  now_ += 1s;
  step();
  EXPECT_EQ(groups(), (std::vector<uint32_t>{5, 11})) << "its step is under way";
}

TEST_F(TpotTest, WhoIsInTheMiddleOfAPromptDoesNotLend) {
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  const auto lends_after = [&] {
    step();
    return plan_.partitions.front().idle_after;
  };
  EXPECT_EQ(lends_after(), TpotPolicy::kLendAfter);
  EXPECT_TRUE(plan_.partitions.front().is_returned_at_once);
  ++said(prefill).begun;
  now_ += 1s;
  EXPECT_EQ(lends_after(), Nanos::max()) << "it may wait for its work in its own way";
  ++said(prefill).ended;
  EXPECT_EQ(lends_after(), TpotPolicy::kLendAfter);
  ++said(prefill).arrivals;
  EXPECT_EQ(lends_after(), Nanos::max()) << "the next one is there already";
}

// A client goes while its prompt is in line, or one iteration answers several.
TEST_F(TpotTest, APromptThatIsNeverAnsweredIsForgotten) {
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  step();
  said(prefill).arrivals += 3;
  now_ += 5ms;
  step();
  ++said(prefill).begun;
  now_ += 30s;
  step();
  EXPECT_EQ(plan_.partitions.front().idle_after, Nanos::max()) << "it answers one";
  ++said(prefill).ended;
  launch(prefill);
  now_ += 9s;
  step();
  EXPECT_EQ(plan_.partitions.front().idle_after, Nanos::max());
  now_ += 2s;
  step();
  EXPECT_EQ(plan_.partitions.front().idle_after, TpotPolicy::kLendAfter);
}

TEST_F(TpotTest, WhatIsLentBetweenTwoIterationsDoesNotSpoilWhatIsMeasured) {
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  at_work_ = {prefill};
  for (int i = 0; i < 4; ++i) {
    processes_[prefill].lends = true;
    tenants_[prefill].groups = 1;
    now_ += 50ms;
    step();
    tenants_[prefill].groups = 1;
    ++said(prefill).begun;  // it stands at its gate
    step();
    processes_[prefill].lends = false;
    tenants_[prefill].groups = 16;
    decode(prefill, 1, 20ms);
    --said(prefill).begun;
  }
  EXPECT_DOUBLE_EQ(plan_.statuses.front().latency, 0.02);
}

TEST_F(TpotTest, LateTokensGetMoreByTheCurve) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  at_work_ = {add(TenantPhase::kPrefill, 1s)};
  decode_linear(decode, 30);
  ASSERT_EQ(groups().front(), 5u);
  // Now 8 groups are as good as ever, and 5 are not: through 19 ms and 10 ms go 15 ms on 6 groups.
  while (groups().front() == 5 && now_ < Time{30s}) this->decode(decode, 1, 19ms);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{6, 10}));
  EXPECT_EQ(state(decode), SloState::kGrows);
}

TEST_F(TpotTest, ARareLateTokenIsNoReason) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  at_work_ = {add(TenantPhase::kPrefill, 1s)};
  decode_linear(decode, 30);
  ASSERT_EQ(groups().front(), 5u);
  for (int i = 0; i < 20; ++i) {
    this->decode(decode, 31, 16ms);
    this->decode(decode, 1, 30ms);
  }
  EXPECT_EQ(groups().front(), 5u);
}

TEST_F(TpotTest, ThatManyStepsAreAmplyInTimeGivesGroupsBack) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  at_work_ = {add(TenantPhase::kPrefill, 1s)};
  decode_linear(decode, 30);
  ASSERT_EQ(groups().front(), 5u);
  this->decode(decode, 30, 8ms);  // the requests have become fewer
  EXPECT_EQ(groups().front(), 5u);
  this->decode(decode, 60, 8ms);
  EXPECT_LT(groups().front(), 5u);
}

// Nothing helps the tokens: with all groups but one they are late.
class HeldPromptsTest : public TpotTest {
 protected:
  void SetUp() override {
    decode_ = add(TenantPhase::kDecode, 20ms);
    prefill_ = add(TenantPhase::kPrefill, 1s);
    at_work_ = {prefill_};
    said(prefill_).begun = 7;
    said(prefill_).ended = 6;
    while (stop_of(prefill_) == 0 && now_ < Time{60s}) decode(decode_, 1, 25ms);
    ASSERT_EQ(groups(), (std::vector<uint32_t>{15, 1}));
  }
  uint32_t decode_ = 0, prefill_ = 0;
};

TEST_F(HeldPromptsTest, TheNextPromptWaitsUntilTokensAreInTime) {
  EXPECT_EQ(stop_of(prefill_), 7u) << "what has begun goes on";
  EXPECT_EQ(state(prefill_), SloState::kHeld);
  EXPECT_EQ(state(decode_), SloState::kAtMost);
  decode(decode_, 60, 17ms);
  EXPECT_EQ(stop_of(prefill_), 7u) << "not in time yet: 17 of 20 ms";
  decode(decode_, 64, 15ms);
  EXPECT_EQ(stop_of(prefill_), 0u);
}

TEST_F(HeldPromptsTest, NobodyWaitsForTokensThatNobodyWrites) {
  now_ += 1s;
  launch(prefill_);
  step();
  EXPECT_EQ(stop_of(prefill_), 0u);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{1, 15}));
}

TEST_F(HeldPromptsTest, APromptWaitsForNoMoreThanHalfOfItsTarget) {
  const Time came = now_;
  said(prefill_).waits_since = came;
  while (stop_of(prefill_) != 0 && now_ < came + 2s) decode(decode_, 1, 25ms);
  EXPECT_EQ(now_, came + 500ms);
  EXPECT_EQ(state(prefill_), SloState::kEven);
  // It had one group of its eight for half a second, which is given back by four at once.
  EXPECT_EQ(groups(), (std::vector<uint32_t>{4, 12}));
  decode(decode_, 34, 25ms);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{4, 12}));
  decode(decode_, 4, 25ms);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{8, 8}));
  said(prefill_).waits_since.reset();
  decode(decode_, 1, 25ms);
  EXPECT_EQ(state(prefill_), SloState::kYields);
}

TEST_F(HeldPromptsTest, WhatIsAnsweredNoLongerWaits) {
  const Time first = now_ + 25ms;
  ++said(prefill_).arrivals;
  decode(decode_, 5, 25ms);
  const Time second = now_ + 25ms;
  ++said(prefill_).arrivals;
  decode(decode_, 5, 25ms);
  ++said(prefill_).ended;
  while (stop_of(prefill_) != 0 && now_ < first + 2s) decode(decode_, 1, 25ms);
  EXPECT_EQ(now_, second + 500ms);
}

TEST_F(TpotTest, WithoutATargetOfItsOwnAPromptHasASecond) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  const uint32_t prefill = add(TenantPhase::kPrefill, 0s);
  at_work_ = {prefill};
  said(prefill).waits_since = now_;
  const Time came = now_;
  while (now_ < came + 499ms) this->decode(decode, 1, 1ms);
  EXPECT_NE(state(prefill), SloState::kEven);
  this->decode(decode, 1, 1ms);
  EXPECT_EQ(state(prefill), SloState::kEven);
}

TEST_F(TpotTest, AProgramIsWhatItDoesMoreOften) {
  const uint32_t server = add(TenantPhase::kAuto, 20ms);
  for (int i = 0; i < 200; ++i) {
    processes_[server].phase = i % 10 == 0 ? ShimPhase::kPrefill : ShimPhase::kDecode;
    decode(server, 1, 5ms);
  }
  ASSERT_EQ(plan_.statuses.size(), 1u);
  EXPECT_EQ(plan_.statuses.front().phase, ShimPhase::kDecode);
}

TEST_F(TpotTest, SmPercentIsTheMost) {
  const uint32_t decode = add(TenantPhase::kDecode, 20ms);
  const uint32_t prefill = add(TenantPhase::kPrefill, 1s);
  tenants_[decode].sm_percent = 25;
  tenants_[prefill].sm_percent = 50;
  at_work_ = {prefill};
  decode_linear(decode, 40);
  EXPECT_EQ(groups(), (std::vector<uint32_t>{4, 8}));
}

// Anything may be said, and come and go: nobody has less than a group, nothing is divided twice,
// and no prompt is held once it has waited for half of its target.
TEST(TpotStorm, KeepsItsPromisesWhateverComes) {
  const char* const text = std::getenv("GPUSHARE_TEST_ORDER_EVENTS");  // `make test-long`: 10^6
  const int64_t events = text != nullptr ? std::atoll(text) : GS_IS_SANITIZED ? 20'000 : 100'000;
  const GpuView gpu{.name = "GPU", .geometry = geometry_of(132), .is_spatial = true};
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t n) { return random() % n; };
  TpotPolicy policy(gpu, {}), twin(gpu, {});
  std::vector<TenantView> tenants(10);
  for (uint32_t id = 0; id < tenants.size(); ++id) tenants[id].id = id;
  std::vector<ProcessView> processes;
  Time now{10s};
  for (int64_t event = 0; event < events && !testing::Test::HasFailure(); ++event) {
    now += Nanos(below(8'000'000));
    if (below(50) == 0 || processes.empty()) {
      processes.clear();
      for (uint32_t id = 0; id < 1 + below(12); ++id) {
        ProcessView& process = processes.emplace_back();
        process.id = id;
        process.process = {static_cast<pid_t>(100 + id), 1 + below(2)};
        process.tenant = static_cast<uint32_t>(below(tenants.size()));
        process.has_shim = below(8) != 0;
        process.has_context = below(8) != 0;
      }
    }
    for (TenantView& tenant : tenants) {
      if (below(20) == 0) tenant.phase = static_cast<TenantPhase>(below(4));
      if (below(20) == 0) tenant.slo = Nanos(below(3) * below(1'000'000'000));
      if (below(50) == 0) tenant.weight = 1 + static_cast<uint32_t>(below(10'000));
      if (below(20) == 0) tenant.sm_percent = 1 + static_cast<uint32_t>(below(100));
      if (below(20) == 0) tenant.sm_percent.reset();
      tenant.groups = static_cast<uint32_t>(below(17));
    }
    for (ProcessView& process : processes) {
      process.phase = static_cast<ShimPhase>(below(3));
      if (below(3) == 0) process.last_launch = now - Nanos(below(10'000'000));
      if (below(30) == 0) process.iterations.reset();
      if (!process.iterations && below(3) == 0)
        process.iterations = {.source = static_cast<ShimSource>(below(3)), .confidence = 1000};
      if (!process.iterations) continue;
      IterationsView& said = *process.iterations;
      const uint64_t ended = below(4);
      said.ended += ended;
      said.begun += below(4);
      said.arrivals += below(3);
      said.busy_ns += ended * below(40'000'000);
      said.latency_ns += ended * below(40'000'000);
      said.period_ns = below(40'000'000);
      said.slo_us = static_cast<uint32_t>(below(2) * below(1'000'000));
      if (below(100) == 0)
        said = {.source = said.source,
                .begun = random(),
                .ended = random(),
                .busy_ns = random(),
                .latency_ns = random(),
                .arrivals = random(),
                .period_ns = random()};
      said.waits_since.reset();
      if (below(4) == 0) said.waits_since = now - Nanos(below(2'000'000'000));
    }
    const Snapshot snapshot{now, tenants, processes, gpu};
    const Plan plan = policy.plan(snapshot);
    EXPECT_EQ(plan.decisions, twin.plan(snapshot).decisions);
    uint32_t sum = 0;
    std::vector<bool> has_prefill(tenants.size());
    for (const PlannedPartition& partition : plan.partitions) {
      ASSERT_EQ(partition.tenants.size(), 1u);
      EXPECT_GE(partition.groups, 1u);
      sum += partition.groups;
    }
    EXPECT_LE(sum, 16u);
    for (const Decision& decision : plan.decisions) {
      if (decision.run_until == 0) continue;
      const auto process = std::ranges::find(processes, decision.process, &ProcessView::id);
      ASSERT_NE(process, processes.end());
      ASSERT_TRUE(process->has_shim && process->has_context && process->iterations);
      const auto status = std::ranges::find(plan.statuses, process->tenant, &SloStatus::tenant);
      ASSERT_NE(status, plan.statuses.end());
      EXPECT_EQ(status->phase, ShimPhase::kPrefill);
      const Nanos target = status->slo > Nanos{} ? status->slo : TpotPolicy::kPromptTarget;
      if (process->iterations->waits_since)
        EXPECT_LT(now - *process->iterations->waits_since, target / 2);
    }
  }
}

// --- whole runs

std::string text(const TokenScore& score) {
  return "tokens " + std::to_string(score.tokens) + " late " + std::to_string(score.late_tokens) +
         " p99 " + std::to_string(score.token_p99 * 1e3) + " ms; prompts " +
         std::to_string(score.prompts) + " late " + std::to_string(score.late_prompts) + " mean " +
         std::to_string(score.prompt_seconds / static_cast<double>(score.prompts) * 1e3) +
         " ms; returns " + std::to_string(score.returns) + " short " +
         std::to_string(score.short_returns);
}

struct Pair {
  TokenScore shares, tpot;
};

Pair run_both(double rate, bool in_bursts, uint64_t seed) {
  const double seconds = 48;
  const auto requests = token_requests(seed, rate, seconds, in_bursts, 400);
  TokenWorld shares("fair", /*is_shared_half=*/true), tpot("tpot", /*is_shared_half=*/false);
  const Pair pair{.shares = shares.run(requests, seconds), .tpot = tpot.run(requests, seconds)};
  std::printf("%.1f a second%s, seed %lu\n  shares: %s\n  tpot:   %s\n", rate,
              in_bursts ? " in bursts" : "", seed, text(pair.shares).c_str(),
              text(pair.tpot).c_str());
  return pair;
}

class TokenRun : public testing::TestWithParam<std::pair<double, bool>> {};

TEST_P(TokenRun, FewerTokensAreLateThanWithHalfTheGpuEachAndNoMorePrompts) {
  TokenScore shares, tpot;
  for (const uint64_t seed : {11, 12, 13}) {
    const Pair pair = run_both(GetParam().first, GetParam().second, seed);
    shares.late_tokens += pair.shares.late_tokens;
    shares.late_prompts += pair.shares.late_prompts;
    shares.tokens += pair.shares.tokens;
    tpot.late_tokens += pair.tpot.late_tokens;
    tpot.late_prompts += pair.tpot.late_prompts;
    tpot.tokens += pair.tpot.tokens;
    tpot.returns += pair.tpot.returns;
    tpot.short_returns += pair.tpot.short_returns;
    if (GS_IS_SANITIZED) break;
  }
  EXPECT_GT(tpot.returns, 50u);
  EXPECT_LE(tpot.short_returns * 20, tpot.returns) << "it waits for its groups";
  EXPECT_GT(shares.late_tokens * 50, shares.tokens)
      << "a run in which nothing is late says nothing";
  EXPECT_LE(static_cast<double>(tpot.late_tokens), 0.54 * static_cast<double>(shares.late_tokens));
  EXPECT_LE(tpot.late_prompts, shares.late_prompts);
}

INSTANTIATE_TEST_SUITE_P(Loads, TokenRun,
                         testing::Values(std::pair(4.0, false), std::pair(3.0, true)));

}  // namespace
}  // namespace gpushare
