// SPDX-License-Identifier: Apache-2.0
// The fair policy's decisions for given snapshots: a table, the course of caps and turns over a few
// calls, and properties over random loads.
#include "sched/policy/fair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace gpushare {

namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1s};
constexpr auto kNone = FreezeReason::kNone;
constexpr auto kCap = FreezeReason::kCap;
constexpr auto kTurn = FreezeReason::kTurn;
constexpr auto kUser = FreezeReason::kUser;

TenantView tenant(uint32_t id, uint32_t weight, Priority priority = Priority::kNormal) {
  TenantView view;
  view.id = id;
  view.weight = weight;
  view.priority = priority;
  return view;
}

CapView cap(double fraction, Nanos tokens) {
  const Nanos quota(static_cast<int64_t>(fraction * 1e8));
  return {.fraction = fraction, .period = 100ms, .burst = quota, .tokens = tokens};
}

TenantView capped(uint32_t id, double fraction, Nanos tokens) {
  TenantView view = tenant(id, 100);
  view.cap = cap(fraction, tokens);
  return view;
}

ProcessView process(uint32_t id, uint32_t of_tenant) {
  ProcessView view;
  view.id = id;
  view.tenant = of_tenant;
  return view;
}
ProcessView idling(ProcessView view) {
  view.wants_gpu = false;
  return view;
}
ProcessView frozen_by_user(ProcessView view) {
  view.is_frozen_by_user = true;
  return view;
}
ProcessView observed(ProcessView view) {
  view.can_control = false;
  return view;
}

struct Expected {
  uint32_t process;
  Micros slice;
  FreezeReason freeze;
  double target;
};

struct Row {
  const char* description;
  std::vector<TenantView> tenants;
  std::vector<ProcessView> processes;
  std::vector<Expected> expected;
  bool needs_fast_tick = false;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.description; }

class FairTable : public testing::TestWithParam<Row> {};

TEST_P(FairTable, Decides) {
  const Row& row = GetParam();
  FairPolicy policy({});
  const Plan plan =
      policy.plan({.now = kStart, .tenants = row.tenants, .processes = row.processes});
  ASSERT_EQ(plan.decisions.size(), row.expected.size());
  for (size_t i = 0; i < row.expected.size(); ++i) {
    SCOPED_TRACE(testing::Message() << row.description << ", process " << row.expected[i].process);
    EXPECT_EQ(plan.decisions[i].process, row.expected[i].process);
    EXPECT_EQ(plan.decisions[i].slice, row.expected[i].slice);
    EXPECT_EQ(plan.decisions[i].freeze, row.expected[i].freeze);
    EXPECT_NEAR(plan.decisions[i].target, row.expected[i].target, 1e-4);
  }
  EXPECT_EQ(plan.needs_fast_tick, row.needs_fast_tick);
}

const Priority kIdle = Priority::kIdle, kHigh = Priority::kHigh;

INSTANTIATE_TEST_SUITE_P(
    Rows, FairTable,
    testing::Values(
        Row{"nobody", {}, {}, {}},
        Row{"one alone has the whole round", {tenant(0, 100)}, {process(0, 0)}, {{0, 20000us, kNone, 1}}},
        Row{"weights become slices of a 20 ms round",
            {tenant(0, 300), tenant(1, 100)},
            {process(0, 0), process(1, 1)},
            {{0, 15000us, kNone, 0.75}, {1, 5000us, kNone, 0.25}}},
        Row{"a tenant's processes share its part",
            {tenant(0, 300), tenant(1, 100)},
            {process(0, 0), process(1, 0), process(2, 1)},
            {{0, 7500us, kNone, 0.375}, {1, 7500us, kNone, 0.375}, {2, 5000us, kNone, 0.25}}},
        Row{"the minimum slice lengthens the round, not the share",
            {tenant(0, 9900), tenant(1, 100)},
            {process(0, 0), process(1, 1)},
            {{0, 99000us, kNone, 0.99}, {1, 1000us, kNone, 0.01}}},
        Row{"no round is longer than a second",
            {tenant(0, 10000), tenant(1, 1)},
            {process(0, 0), process(1, 1)},
            {{0, 999900us, kNone, 0.9999}, {1, 1000us, kNone, 0.0001}}},
        Row{"who has no work takes no part but finds the slice of its weight",
            {tenant(0, 100), tenant(1, 300)},
            {process(0, 0), idling(process(1, 1))},
            {{0, 20000us, kNone, 1}, {1, 15000us, kNone, -1}}},
        Row{"an idle sibling would share its tenant's part",
            {tenant(0, 100), tenant(1, 100)},
            {process(0, 0), process(1, 1), idling(process(2, 1))},
            {{0, 10000us, kNone, 0.5}, {1, 10000us, kNone, 0.5}, {2, 5000us, kNone, -1}}},
        Row{"all idle: each the slice it would have alone",
            {tenant(0, 1), tenant(1, 100)},
            {idling(process(0, 0)), idling(process(1, 1))},
            {{0, 20000us, kNone, -1}, {1, 20000us, kNone, -1}}},
        Row{"a slice that is near enough is left alone",
            {tenant(0, 100), tenant(1, 100)},
            {[] {
               ProcessView view = process(0, 0);
               view.slice = 9900us;
               return view;
             }(),
             process(1, 1)},
            {{0, 9900us, kNone, 0.5}, {1, 10000us, kNone, 0.5}}},
        Row{"frozen by the user: frozen, and its part is the others'",
            {tenant(0, 100), tenant(1, 100)},
            {frozen_by_user(process(0, 0)), process(1, 1)},
            {{0, 2048us, kUser, 0}, {1, 20000us, kNone, 1}}},
        Row{"a frozen tenant freezes all of its processes",
            {[] {
               TenantView view = tenant(0, 100);
               view.is_frozen_by_user = true;
               return view;
             }()},
            {process(0, 0), idling(process(1, 0))},
            {{0, 2048us, kUser, 0}, {1, 2048us, kUser, 0}}},
        Row{"observed only: takes part, is not named",
            {tenant(0, 100), tenant(1, 100)},
            {observed(process(0, 0)), process(1, 1)},
            {{1, 10000us, kNone, 0.5}}},
        Row{"a process of an unknown tenant is left alone",
            {tenant(0, 100)},
            {process(0, 0), process(1, 7)},
            {{0, 20000us, kNone, 1}}},
        Row{"a cap below the share goes to the others by weight",
            {capped(0, 0.1, 10ms), tenant(1, 100), tenant(2, 200)},
            {process(0, 0), process(1, 1), process(2, 2)},
            {{0, 2000us, kNone, 0.1}, {1, 6000us, kNone, 0.3}, {2, 12000us, kNone, 0.6}}},
        Row{"a cap above the share does not count",
            {capped(0, 0.6, 60ms), tenant(1, 100)},
            {process(0, 0), process(1, 1)},
            {{0, 10000us, kNone, 0.5}, {1, 10000us, kNone, 0.5}}},
        Row{"a bucket that is not empty yet",
            {capped(0, 0.3, 5ms)},
            {process(0, 0)},
            {{0, 20000us, kNone, 0.3}}},
        Row{"overdrawn: all that want the GPU are frozen, the idle one is not",
            {capped(0, 0.3, -1ns)},
            {process(0, 0), process(1, 0), idling(process(2, 0))},
            {{0, 10000us, kCap, 0.15}, {1, 10000us, kCap, 0.15}, {2, 6667us, kNone, -1}}},
        Row{"a process's own cap leaves its siblings the rest",
            {tenant(0, 100)},
            {[] {
               ProcessView view = process(0, 0);
               view.cap = cap(0.2, 20ms);
               return view;
             }(),
             process(1, 0)},
            {{0, 4000us, kNone, 0.2}, {1, 16000us, kNone, 0.8}}},
        Row{"idle class beside normal: 1 us, and one at a time",
            {tenant(0, 100), tenant(1, 100, kIdle), tenant(2, 100, kIdle)},
            {process(0, 0), process(1, 1), process(2, 2)},
            {{0, 20000us, kNone, 1}, {1, 1us, kNone, -1}, {2, 1us, kTurn, -1}},
            true},
        Row{"a lone idle-class process is never frozen for a turn",
            {tenant(0, 100), tenant(1, 100, kIdle)},
            {process(0, 0), process(1, 1)},
            {{0, 20000us, kNone, 1}, {1, 1us, kNone, -1}}},
        Row{"idle class with work goes before one without",
            {tenant(0, 100), tenant(1, 100, kIdle)},
            {process(0, 0), idling(process(1, 1)), process(2, 1)},
            {{0, 20000us, kNone, 1}, {1, 1000us, kNone, -1}, {2, 1us, kNone, -1}}},
        Row{"the background has the GPU to itself while the foreground is idle",
            {tenant(0, 100), tenant(1, 100, kIdle), tenant(2, 300, kIdle)},
            {idling(process(0, 0)), process(1, 1), process(2, 2)},
            {{0, 20000us, kNone, -1}, {1, 1us, kNone, 0.25}, {2, 1us, kTurn, 0.75}},
            true},
        Row{"idle class among itself shares like any other",
            {tenant(0, 100, kIdle), tenant(1, 300, kIdle)},
            {process(0, 0), process(1, 1)},
            {{0, 5000us, kNone, 0.25}, {1, 15000us, kNone, 0.75}}},
        Row{"high before normal before idle",
            {tenant(0, 100, kHigh), tenant(1, 100), tenant(2, 100, kIdle)},
            {process(0, 0), process(1, 1), process(2, 2)},
            {{0, 20000us, kNone, 1}, {1, 1us, kNone, -1}, {2, 1us, kTurn, -1}},
            true},
        Row{"high without work keeps all others in the background: it may wake",
            {tenant(0, 100, kHigh), tenant(1, 100), tenant(2, 300)},
            {idling(process(0, 0)), process(1, 1), process(2, 2)},
            {{0, 20000us, kNone, -1}, {1, 1us, kNone, 0.25}, {2, 1us, kTurn, 0.75}},
            true},
        Row{"several high share by weight",
            {tenant(0, 100, kHigh), tenant(1, 400, kHigh), tenant(2, 100)},
            {process(0, 0), process(1, 1), process(2, 2)},
            {{0, 4000us, kNone, 0.2}, {1, 16000us, kNone, 0.8}, {2, 1us, kNone, -1}}},
        Row{"an overdrawn idle-class process leaves the background to the next",
            {tenant(0, 100), [] {
               TenantView view = capped(1, 0.2, -1ms);
               view.priority = kIdle;
               return view;
             }(), tenant(2, 100, kIdle)},
            {process(0, 0), process(1, 1), process(2, 2)},
            {{0, 20000us, kNone, 1}, {1, 1us, kCap, -1}, {2, 1us, kNone, -1}}}));

TEST(FairCap, ThawsWhenThereIsEnoughForARunAndSaysWhen) {
  FairPolicy policy({});
  std::vector<TenantView> tenants = {capped(0, 0.3, -1ms)};
  std::vector<ProcessView> processes = {process(0, 0)};
  Plan plan = policy.plan({kStart, tenants, processes});
  EXPECT_EQ(plan.decisions[0].freeze, kCap);
  EXPECT_FALSE(plan.needs_fast_tick) << "the refill's instant is known";
  // 30 ms * 0.7 / 2 = 10.5 ms is enough; 11.5 ms at 0.3 a ns take 38.3 ms.
  EXPECT_EQ(plan.next, kStart + 38'333'334ns);

  processes[0].is_frozen = true;
  tenants[0].cap->tokens = 10ms;
  plan = policy.plan({kStart + 37ms, tenants, processes});
  EXPECT_EQ(plan.decisions[0].freeze, kCap);
  tenants[0].cap->tokens = 10500us;
  plan = policy.plan({plan.next, tenants, processes});
  EXPECT_EQ(plan.decisions[0].freeze, kNone);
  EXPECT_EQ(plan.next, kStart + 37ms + 1'666'667ns + 15ms) << "empty at the earliest";

  processes[0].is_frozen = false;
  tenants[0].cap->tokens = 0ns;
  plan = policy.plan({kStart + 60ms, tenants, processes});
  EXPECT_EQ(plan.decisions[0].freeze, kNone) << "not overdrawn yet";
}

TEST(FairCap, LooksAtABucketWhenItMayBeEmptyAndBesideOthersTwentyTimesAPeriodAtMost) {
  FairPolicy policy({});
  const std::vector<TenantView> tenants = {capped(0, 0.3, 700us), tenant(1, 100)};
  const Plan alone = policy.plan({kStart, tenants, std::vector{process(0, 0)}});
  EXPECT_EQ(alone.next, kStart + 1ms);
  const Plan beside =
      FairPolicy({}).plan({kStart, tenants, std::vector{process(0, 0), process(1, 1)}});
  EXPECT_EQ(beside.next, kStart + 5ms) << "the period is 100 ms";
  EXPECT_FALSE(beside.needs_fast_tick);
}

TEST(FairTurns, GoOnAfterATurnsWorthOfGpuTime) {
  FairPolicy policy({});
  const std::vector<TenantView> tenants = {tenant(0, 100), tenant(1, 100, kIdle),
                                           tenant(2, 100, kIdle)};
  std::vector<ProcessView> processes = {process(0, 0), process(1, 1), process(2, 2)};
  Plan plan = policy.plan({kStart, tenants, processes});
  EXPECT_EQ(plan.decisions[2].freeze, kTurn);
  EXPECT_EQ(plan.next, kStart + 50ms);
  processes[1].used = 49ms;
  processes[2].is_frozen = true;
  plan = policy.plan({kStart + 55ms, tenants, processes});
  EXPECT_EQ(plan.decisions[2].freeze, kTurn);
  EXPECT_EQ(plan.next, kStart + 56ms);
  processes[1].used = 1ms;
  plan = policy.plan({kStart + 56ms, tenants, processes});
  EXPECT_EQ(plan.decisions[1].freeze, kTurn);
  EXPECT_EQ(plan.decisions[2].freeze, kNone);
}

TEST(FairTurns, GoOnWhenTheHolderHasNoMoreWork) {
  FairPolicy policy({});
  const std::vector<TenantView> tenants = {tenant(0, 100), tenant(1, 100, kIdle)};
  std::vector<ProcessView> processes = {process(0, 0), process(1, 1), process(2, 1)};
  EXPECT_EQ(policy.plan({kStart, tenants, processes}).decisions[2].freeze, kTurn);
  processes[1].wants_gpu = false;
  const Plan plan = policy.plan({kStart + 2ms, tenants, processes});
  EXPECT_EQ(plan.decisions[1].freeze, kNone);
  EXPECT_EQ(plan.decisions[1].slice, 1000us) << "if it wakes there must not be two with 1 us";
  EXPECT_EQ(plan.decisions[2].freeze, kNone);
  EXPECT_EQ(plan.decisions[2].slice, 1us);
}

TEST(FairPriority, HighCountsWithoutWorkForEverAndEndsWithItsProcess) {
  FairPolicy policy({});
  const std::vector<TenantView> tenants = {tenant(0, 100, kHigh), tenant(1, 100)};
  std::vector<ProcessView> processes = {idling(process(0, 0)), process(1, 1)};
  for (const Nanos after : {0ns, Nanos(1s), Nanos(1h)}) {
    const Plan plan = policy.plan({kStart + after, tenants, processes});
    EXPECT_EQ(plan.decisions[1].slice, 1us);
    EXPECT_EQ(plan.decisions[1].freeze, kNone);
  }
  processes.erase(processes.begin());
  EXPECT_EQ(policy.plan({kStart + 2h, tenants, processes}).decisions[0].slice, 20000us);
}

// --- properties

struct Load {
  std::vector<TenantView> tenants;
  std::vector<ProcessView> processes;
};

Load random_load(std::mt19937& random) {
  const auto up_to = [&random](uint32_t n) { return std::uniform_int_distribution(0U, n)(random); };
  Load load;
  const uint32_t tenants = 1 + up_to(11);
  for (uint32_t id = 0; id < tenants; ++id) {
    TenantView view = tenant(id * 7, 1 + up_to(up_to(1) ? 9999 : 300),
                             static_cast<Priority>(up_to(up_to(1) ? 2 : 0) ? up_to(2) : 1));
    if (up_to(3) == 0) view.cap = cap(0.01 + 0.01 * up_to(99), Nanos(up_to(4'000'000)) - 2ms);
    view.is_frozen_by_user = up_to(15) == 0;
    load.tenants.push_back(view);
  }
  const uint32_t processes = up_to(24);
  for (uint32_t id = 0; id < processes; ++id) {
    ProcessView view = process(id * 3 + 1, 7 * up_to(tenants - 1));
    view.wants_gpu = up_to(3) != 0;
    view.is_frozen = up_to(3) == 0;
    view.is_frozen_by_user = up_to(15) == 0;
    view.can_control = up_to(9) != 0;
    if (up_to(7) == 0) view.cap = cap(0.01 + 0.01 * up_to(99), Nanos(up_to(4'000'000)) - 2ms);
    view.used = Nanos(up_to(20'000'000));
    view.turns = up_to(20);
    view.slice = Micros(1 + up_to(30'000));
    load.processes.push_back(view);
  }
  return load;
}

// Carries the plan out in the views, so that the next call sees it.
void enforce(const Plan& plan, Load& load) {
  for (const Decision& decision : plan.decisions) {
    for (ProcessView& view : load.processes) {
      if (view.id != decision.process) continue;
      view.slice = decision.slice;
      view.is_frozen = decision.freeze != kNone;
    }
  }
}

class FairProperties : public testing::TestWithParam<uint32_t> {
 protected:
  // A policy with some history, on a load that changes from call to call.
  template <class Check>
  void for_random_loads(Check&& check) {
    std::mt19937 random(GetParam());
    for (int run = 0; run < 60; ++run) {
      FairPolicy policy({});
      Load load = random_load(random);
      Time now = kStart;
      for (int call = 0; call < 12; ++call) {
        const Plan plan = policy.plan({now, load.tenants, load.processes});
        check(load, plan, now);
        if (testing::Test::HasFailure()) return;
        enforce(plan, load);
        for (ProcessView& view : load.processes) {
          view.used = view.is_frozen ? 0ns : Nanos(random() % 5'000'000);
          if (random() % 8 == 0) view.wants_gpu = !view.wants_gpu;
        }
        for (TenantView& view : load.tenants) {
          if (view.cap) view.cap->tokens = Nanos(random() % 20'000'000) - 5ms;
        }
        now += Nanos(1'000'000 + random() % 150'000'000);
      }
    }
  }
};

TEST_P(FairProperties, HoldForEveryPlan) {
  for_random_loads([](const Load& load, const Plan& plan, Time now) {
    std::map<uint32_t, const ProcessView*> by_id;
    for (const ProcessView& view : load.processes) by_id[view.id] = &view;
    double sum = 0;
    int best_effort = 0;
    uint32_t last = 0;
    for (const Decision& decision : plan.decisions) {
      const ProcessView& view = *by_id.at(decision.process);
      EXPECT_TRUE(last == 0 || decision.process > last) << "once each, by id";
      last = decision.process;
      EXPECT_TRUE(view.can_control);
      const bool is_by_user = decision.freeze == kUser;
      EXPECT_TRUE(is_by_user || decision.slice == 1us || decision.slice >= 1000us);
      EXPECT_LE(decision.slice, 1s);
      if (decision.freeze == kNone && decision.slice == 1us) ++best_effort;
      if (decision.target > 0) sum += decision.target;
      EXPECT_TRUE(is_by_user || !view.is_frozen_by_user);
    }
    EXPECT_LE(sum, 1 + 1e-9);
    EXPECT_LE(best_effort, 1);
    EXPECT_GT(plan.next, now);
  });
}

TEST_P(FairProperties, NobodyWithWorkStarvesButForAReason) {
  for_random_loads([](const Load& load, const Plan& plan, Time) {
    bool is_anyone_thawed = false, is_anyone_waiting = false;
    for (const Decision& decision : plan.decisions) {
      const auto view = std::ranges::find(load.processes, decision.process, &ProcessView::id);
      is_anyone_thawed |= decision.freeze == kNone && view->wants_gpu;
      is_anyone_waiting |= decision.freeze == kTurn;
      if (decision.freeze != kNone || !view->wants_gpu) continue;
      // The foreground has a share of its own; the background what is left.
      EXPECT_TRUE(decision.slice == 1us || decision.target > 0);
    }
    EXPECT_TRUE(is_anyone_thawed || !is_anyone_waiting) << "somebody's turn it must be";
  });
}

TEST_P(FairProperties, TheOrderOfTheInputIsIrrelevant) {
  std::mt19937 random(GetParam());
  for (int run = 0; run < 60; ++run) {
    FairPolicy one({}), other({});
    Load load = random_load(random);
    Load shuffled = load;
    Time now = kStart;
    for (int call = 0; call < 5; ++call) {
      std::ranges::shuffle(shuffled.tenants, random);
      std::ranges::shuffle(shuffled.processes, random);
      const Plan a = one.plan({now, load.tenants, load.processes});
      const Plan b = other.plan({now, shuffled.tenants, shuffled.processes});
      ASSERT_EQ(a.decisions, b.decisions);
      ASSERT_EQ(a.next, b.next);
      ASSERT_EQ(a.needs_fast_tick, b.needs_fast_tick);
      enforce(a, load);
      enforce(b, shuffled);
      now += 120ms;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FairProperties, testing::Range(1U, 9U));

TEST(FairTurns, EveryoneInTheBackgroundHasItsTurn) {
  FairPolicy policy({});
  Load load;
  load.tenants = {tenant(0, 100), tenant(1, 10, kIdle), tenant(2, 1000, kIdle)};
  load.processes = {process(0, 0), process(1, 1), process(2, 2), process(3, 2), process(4, 1)};
  std::map<uint32_t, Nanos> had;
  Time now = kStart;
  for (int call = 0; call < 20'000; ++call) {
    const Plan plan = policy.plan({now, load.tenants, load.processes});
    enforce(plan, load);
    for (ProcessView& view : load.processes) {
      view.used = !view.is_frozen && view.slice == 1us ? 10ms : 0ms;
      had[view.id] += view.used;
    }
    now += 10ms;
  }
  EXPECT_NEAR(static_cast<double>(had[2].count()) / had[1].count(), 100, 10);
  EXPECT_NEAR(static_cast<double>(had[2].count()) / had[3].count(), 1, 0.02);
  EXPECT_NEAR(static_cast<double>(had[4].count()) / had[1].count(), 1, 0.1);
}

TEST(Fair, TakesAFullMachine) {
  FairPolicy policy({});
  Load load;
  for (uint32_t id = 0; id < 1000; ++id) load.tenants.push_back(tenant(id, 1 + id * 7 % 300));
  for (uint32_t id = 0; id < kMaxProcesses; ++id) load.processes.push_back(process(id, id % 1000));
  const Plan plan = policy.plan({kStart, load.tenants, load.processes});
  double sum = 0;
  for (const Decision& decision : plan.decisions) {
    sum += decision.target;
    EXPECT_GE(decision.slice, 1000us);
  }
  EXPECT_EQ(plan.decisions.size(), kMaxProcesses);
  EXPECT_NEAR(sum, 1, 1e-9);
}

}  // namespace
}  // namespace gpushare
