// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/who_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Time kInstant{1000s};
constexpr Nanos kShortestTurn = 200ms;

// Each list is one GPU's, of which the first job has the turn by the plan.
std::vector<JobOrder> orders_of(const std::vector<std::vector<uint64_t>>& lists) {
  std::vector<JobOrder> orders;
  for (const std::vector<uint64_t>& ids : lists) {
    std::vector<JobDecision> jobs;
    for (const uint64_t id : ids)
      jobs.push_back({.job = id, .runs = jobs.empty(), .turn = kShortestTurn});
    orders.emplace_back(static_cast<uint32_t>(orders.size()), std::move(jobs));
  }
  return orders;
}

Contender waiting(uint64_t id, uint64_t gpus, Nanos time, Priority priority = Priority::kNormal) {
  return {
      .id = id, .gpus = gpus, .priority = priority, .wants_gpu = true, .since = kInstant - time};
}
Contender running(uint64_t id, uint64_t gpus, Nanos time) {
  return {.id = id, .gpus = gpus, .wants_gpu = true, .runs = true, .since = kInstant - time};
}
Contender without_work(uint64_t id, uint64_t gpus) { return {.id = id, .gpus = gpus}; }

struct ChoiceRow {
  const char* description;
  std::vector<std::vector<uint64_t>> lists;
  std::vector<Contender> jobs;
  std::vector<uint64_t> chosen;
};

TEST(WhoRuns, FollowsFromAllPlans) {
  const ChoiceRow rows[] = {
      {"the first of a GPU", {{2, 1}}, {waiting(1, 1, 9s), waiting(2, 1, 1s)}, {2}},
      {"who has no work lends its turn", {{1, 2}}, {without_work(1, 1), waiting(2, 1, 1s)}, {2}},
      {"and keeps it where nobody has", {{1, 2}}, {without_work(1, 1), without_work(2, 1)}, {1}},
      {"who is first on all of its GPUs goes before who is first on GPU 0 alone",
       {{1, 2}, {3, 1}},
       {waiting(1, 0b11, 9s), waiting(2, 0b01, 1s), waiting(3, 0b10, 1s)},
       {2, 3}},
      {"more rivals do not make a GPU's plan count more",
       {{1, 2, 4, 5}, {3, 1}},
       {waiting(1, 0b11, 9s), waiting(2, 0b01, 1s), waiting(3, 0b10, 1s), waiting(4, 0b01, 1s),
        waiting(5, 0b01, 1s)},
       {2, 3}},
      {"in a ring of plans who has waited longest",
       {{1, 3}, {2, 1}, {3, 2}},
       {waiting(1, 0b011, 1s), waiting(2, 0b110, 3s), waiting(3, 0b101, 2s)},
       {2}},
      {"unless one has not had its shortest turn",
       {{1, 3}, {2, 1}, {3, 2}},
       {running(1, 0b011, 100ms), waiting(2, 0b110, 3s), waiting(3, 0b101, 2s)},
       {1}},
      {"after which it goes last",
       {{1, 3}, {2, 1}, {3, 2}},
       {running(1, 0b011, kShortestTurn), waiting(2, 0b110, 2s), waiting(3, 0b101, 3s)},
       {3}},
      {"a GPU idles where each of its jobs needs another one, too",
       {{2, 1}, {3, 1, 2}, {3, 2}},
       {running(1, 0b011, 1ms), waiting(2, 0b111, 1s), waiting(3, 0b110, 2s)},
       {3}},
      {"the highest class first, however short it has waited",
       {{1, 2}, {2, 1}},
       {waiting(1, 0b11, 9s), waiting(2, 0b11, 1s, Priority::kHigh)},
       {2}},
      {"what fits beside it runs as well",
       {{1, 2, 4}, {2, 1}, {3}},
       {waiting(1, 0b011, 1s), waiting(2, 0b011, 2s), waiting(3, 0b100, 1s), waiting(4, 0b001, 9s)},
       {2, 3}},
      {"whom a plan does not know yet",
       {{1}, {}},
       {waiting(1, 0b01, 1s), waiting(2, 0b01, 9s)},
       {1}},
      {"whom nobody sees any more", {{7, 1}}, {waiting(1, 1, 1s)}, {1}},
  };
  for (const ChoiceRow& row : rows)
    EXPECT_EQ(who_runs(kInstant, orders_of(row.lists), row.jobs), row.chosen) << row.description;
}

// As many as the plan says run, and a job on several GPUs needs room on each.
TEST(WhoRuns, APlanMayLetSeveralRun) {
  std::vector<JobOrder> orders;
  orders.emplace_back(
      0, std::vector<JobDecision>{{.job = 1, .runs = true}, {.job = 2, .runs = true}, {.job = 3}});
  orders.emplace_back(1, std::vector<JobDecision>{{.job = 4, .runs = true}, {.job = 2}});
  const std::vector<Contender> jobs = {waiting(1, 0b01, 1s), waiting(2, 0b11, 1s),
                                       waiting(3, 0b01, 1s), waiting(4, 0b10, 1s)};
  EXPECT_EQ(who_runs(kInstant, orders, jobs), (std::vector<uint64_t>{1, 3, 4}));
}

// Whatever the plans are: of two that run no two need the same GPU, and whoever waits does so for
// one that runs, of its class or a higher one where the plans keep to the classes.
TEST(WhoRuns, LeavesNoGpuIdleAndOvertakesNoClass) {
  std::mt19937_64 random(5);
  const auto pick = [&](uint64_t below) { return random() % below; };
  for (int round = 0; round < 5'000; ++round) {
    std::vector<Contender> jobs;
    for (uint64_t id = 1, count = 1 + pick(10); id <= count; ++id)
      jobs.push_back({.id = id,
                      .gpus = 1 + pick(15),
                      .priority = static_cast<Priority>(pick(3)),
                      .wants_gpu = pick(4) > 0,
                      .runs = pick(3) == 0,
                      .since = kInstant - Nanos(std::chrono::milliseconds(pick(1000)))});
    std::vector<std::vector<uint64_t>> lists(4);
    for (uint32_t gpu = 0; gpu < 4; ++gpu) {
      std::vector<std::tuple<int, uint64_t, uint64_t>> ranked;
      for (const Contender& job : jobs)
        if ((job.gpus >> gpu & 1) != 0)
          ranked.emplace_back(-static_cast<int>(job.priority), random(), job.id);
      std::ranges::sort(ranked);
      for (const auto& [priority, chance, id] : ranked) lists[gpu].push_back(id);
    }
    const std::vector<uint64_t> chosen = who_runs(kInstant, orders_of(lists), jobs);
    uint64_t taken = 0;
    for (const uint64_t id : chosen) {
      ASSERT_EQ(taken & jobs[id - 1].gpus, 0U);
      taken |= jobs[id - 1].gpus;
    }
    for (const Contender& job : jobs) {
      if (!job.wants_gpu || std::ranges::binary_search(chosen, job.id)) continue;
      ASSERT_TRUE(std::ranges::any_of(chosen,
                                      [&](uint64_t id) {
                                        const Contender& other = jobs[id - 1];
                                        return (other.gpus & job.gpus) != 0 && other.wants_gpu &&
                                               other.priority >= job.priority;
                                      }))
          << "job " << job.id << " in round " << round;
    }
  }
}

}  // namespace
}  // namespace gpushare
