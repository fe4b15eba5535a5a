// SPDX-License-Identifier: Apache-2.0
// Random events against each policy that orders jobs, in virtual time: arrivals, ends, pauses,
// iterations that never end, lies, classes and caps that change. And views that no agent would
// make. GPUSHARE_TEST_ORDER_EVENTS is the number of events for each policy (100,000; `make
// test-long` takes a million).
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include "bench/sched/replay/machine.h"
#include "tests/sched/orders/order_world.h"

namespace gpushare {
namespace {

class OrderStorm : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Policy> make(const replay::Options& options) const {
    static const LengthHistory kNothingLearnt;
    return replay::policy_named(GetParam(), options).value()(kNothingLearnt);
  }
};
INSTANTIATE_TEST_SUITE_P(All, OrderStorm, testing::Values("fifo", "srtf", "turns"));

int64_t events_wanted() {
  const char* text = std::getenv("GPUSHARE_TEST_ORDER_EVENTS");
  return text == nullptr ? 100'000 : std::atoll(text);
}

TEST_P(OrderStorm, OneRunsAndNobodyIsForgotten) {
  constexpr Nanos kMostGrace = 1s;
  std::mt19937_64 random(11);
  const auto below = [&](uint64_t n) { return random() % n; };
  test::OrderWorld world(make({{"patience_s", 30}, {"turn_ms", 40}}));
  for (uint32_t id = 0; id < 4; ++id) world.tenants.push_back({.id = id});
  Time wanted_since = world.now;  // since when somebody wants the GPU and nobody runs who does
  int64_t stopped = 0;            // how often a job that wants the GPU was out of tokens
  for (int64_t event = 0; event < events_wanted(); ++event) {
    switch (below(20)) {
      case 0:
        if (world.jobs.size() < 12) {
          JobView& job =
              world.add(below(2) == 0 ? std::optional(Nanos(below(60'000'000'000))) : std::nullopt,
                        Nanos(below(2'000'000'000)));
          job.left_source = LeftSource::kUnknown;  // the test ends it
          job.tenant = static_cast<uint32_t>(below(4));
          job.priority = static_cast<Priority>(below(3));
          job.weight = static_cast<uint32_t>(1 + below(10'000));
        }
        break;
      case 1:  // the job, its tenant or its GPU goes
        if (!world.jobs.empty()) world.remove(world.jobs[below(world.jobs.size())].id);
        break;
      case 2:
      case 3:
        if (!world.jobs.empty()) {
          JobView& job = world.jobs[below(world.jobs.size())];
          job.wants_gpu = !job.wants_gpu;
        }
        break;
      case 4:
        if (!world.jobs.empty()) {
          JobView& job = world.jobs[below(world.jobs.size())];
          job.left = below(2) == 0 ? std::nullopt : std::optional(Nanos(below(1'000'000'000)));
          job.priority = static_cast<Priority>(below(3));
          job.weight = static_cast<uint32_t>(1 + below(100));
        }
        break;
      case 5: {  // a cap, with more or less than it needs to run, or none
        const Nanos tokens = std::chrono::milliseconds(below(80)) - 50ms;
        std::optional<CapView>& cap = world.tenants[below(4)].cap;
        cap.reset();
        if (below(3) > 0)
          cap = CapView{.fraction = 0.3, .period = 100ms, .burst = 30ms, .tokens = tokens};
        break;
      }
      default:
        break;
    }
    world.processes.clear();
    for (const JobView& job : world.jobs)
      world.processes.push_back({.id = static_cast<uint32_t>(world.processes.size()),
                                 .tenant = job.tenant,
                                 .wants_gpu = job.wants_gpu,
                                 .job = job.id});
    const Plan& plan = world.decide();
    std::set<uint64_t> out_of_tokens;  // the jobs whose one process the plan freezes for its cap
    for (const Decision& decision : plan.decisions)
      if (decision.freeze == FreezeReason::kCap)
        out_of_tokens.insert(world.processes[decision.process].job);
    stopped += out_of_tokens.empty() ? 0 : 1;
    const auto is_ready = [&](const JobView& job) {
      return job.wants_gpu && !out_of_tokens.contains(job.id);
    };
    ASSERT_EQ(plan.jobs.size(), world.jobs.size()) << "each job is named, and nobody who went";
    std::set<uint64_t> named;
    Priority highest = Priority::kIdle;
    bool is_wanted = false;
    for (const JobView& job : world.jobs)
      if (is_ready(job)) is_wanted = true, highest = std::max(highest, job.priority);
    for (const JobDecision& decision : plan.jobs) {
      ASSERT_TRUE(named.insert(decision.job).second);
      const JobView& job = world.job(decision.job);
      ASSERT_EQ(decision.runs, &decision == &plan.jobs.front()) << "one runs, and it is the first";
      ASSERT_GT(decision.grace, 0ns);
      ASSERT_LE(decision.grace, kMostGrace);
      if (decision.runs && is_wanted) {
        ASSERT_TRUE(is_ready(job))
            << "nobody has the turn who wants nothing, or may not run, while another wants it";
        ASSERT_EQ(job.priority, highest);
      }
    }
    ASSERT_GT(plan.next, world.now);
    ASSERT_LE(std::ranges::count(world.jobs, true, &JobView::runs), 1);
    const bool is_served = world.running() != 0 && is_ready(world.job(world.running()));
    if (!is_wanted || is_served) wanted_since = world.now;
    ASSERT_LE(world.now - wanted_since, kMostGrace + 40ms) << "after " << event << " events";
    world.run(Nanos(1 + below(30'000'000)));
  }
  EXPECT_GT(stopped, events_wanted() / 10) << "caps held somebody";
}

// Nobody waits for ever where there is patience, although new jobs with less left come always.
TEST_P(OrderStorm, PatienceHoldsUnderAStreamOfShortJobs) {
  test::OrderWorld world(make({{"patience_s", 5}}));
  world.add(1h, 10ms);
  Nanos longest{};
  Time last = world.now;
  for (int i = 0; i < 3000; ++i) {
    if (world.jobs.size() < 4) world.add(100ms, 10ms);
    const Nanos had = world.job(1).service;
    world.run_for(20ms);
    if (world.job(1).service > had) last = world.now;
    longest = std::max(longest, world.now - last);
  }
  EXPECT_LE(longest, 6s);
}

// Whatever the numbers are, there is an answer that names jobs of the snapshot, and it comes back.
TEST_P(OrderStorm, TakesAnyView) {
  std::mt19937_64 random(3);
  const auto any = [&]() -> int64_t {
    constexpr std::array<int64_t, 8> kEdges = {0,
                                               1,
                                               -1,
                                               std::numeric_limits<int64_t>::max(),
                                               std::numeric_limits<int64_t>::min(),
                                               1'000'000'000,
                                               -1'000'000'000,
                                               std::numeric_limits<int64_t>::max() / 2};
    return random() % 2 == 0 ? kEdges[random() % kEdges.size()] : static_cast<int64_t>(random());
  };
  const auto fraction = [&] {
    constexpr std::array<double, 6> kEdges = {0,
                                              1,
                                              -1,
                                              std::numeric_limits<double>::quiet_NaN(),
                                              std::numeric_limits<double>::infinity(),
                                              1e-300};
    return kEdges[random() % kEdges.size()];
  };
  const auto cap = [&]() -> std::optional<CapView> {
    if (random() % 2 == 0) return std::nullopt;
    return CapView{.fraction = fraction(),
                   .period = Nanos(any()),
                   .burst = Nanos(any()),
                   .tokens = Nanos(any())};
  };
  const auto policy = make({{"patience_s", 1}});
  for (int round = 0; round < 20'000; ++round) {
    std::vector<JobView> jobs(random() % 6);
    for (JobView& job : jobs) {
      job = {.id = random() % 4 == 0 ? random() : random() % 8,
             .name = "x",
             .tenant = static_cast<uint32_t>(any()),
             .priority = static_cast<Priority>(random() % 3),
             .weight = static_cast<double>(static_cast<uint32_t>(any())),
             .arrived = Time(Nanos(any())),
             .service = Nanos(any()),
             .period = Nanos(any()),
             .longest = Nanos(any()),
             .iterations = random(),
             .wants_gpu = random() % 2 == 0,
             .runs = random() % 2 == 0,
             .since = Time(Nanos(any()))};
      if (random() % 2 == 0) job.left = Nanos(any());
    }
    std::vector<TenantView> tenants(random() % 3);
    for (TenantView& tenant : tenants)
      tenant = {.id = static_cast<uint32_t>(any()), .weight = 0, .cap = cap()};
    std::vector<ProcessView> processes(random() % 4);
    for (ProcessView& process : processes) {
      process.id = static_cast<uint32_t>(any());
      process.tenant = tenants.empty() ? 7 : tenants[0].id;
      process.slice = Micros(any());
      process.cap = cap();
      process.job = random() % 8;
    }
    const Plan plan = policy->plan(
        {.now = Time(Nanos(any())), .tenants = tenants, .processes = processes, .jobs = jobs});
    ASSERT_EQ(plan.jobs.size(), jobs.size());
    if (!jobs.empty()) ASSERT_EQ(std::ranges::count(plan.jobs, true, &JobDecision::runs), 1);
  }
}

}  // namespace
}  // namespace gpushare
