// SPDX-License-Identifier: Apache-2.0
// What a tenant holds, and the limits of those above it.
// clang-format off
#include "tests/kmod/members/atomic64.h"
#include "kmod/members/counter.h"
// clang-format on

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace gpushare {
namespace {

constexpr uint32_t kGpu = 3;

// root > team > job, and another job beside it.
struct CounterTree : testing::Test {
  CounterTree() {
    gs_counter_init(&root, nullptr);
    gs_counter_init(&team, &root);
    gs_counter_init(&job, &team);
    gs_counter_init(&other, &team);
  }
  static uint64_t held(const gs_counter& counter) {
    return static_cast<uint64_t>(atomic64_read(&counter.memory[kGpu]));
  }
  static uint64_t sum(const gs_counter& counter) {
    return static_cast<uint64_t>(atomic64_read(&counter.memory_current));
  }
  static uint64_t peak(const gs_counter& counter) {
    return static_cast<uint64_t>(atomic64_read(&counter.memory_peak));
  }
  // What the driver gives, as it is asked for.
  bool takes(gs_counter& counter, uint64_t bytes) {
    if (gs_counter_try_memory(&counter, kGpu, bytes) != nullptr) return false;
    gs_counter_hold_memory(&counter, nullptr, bytes);
    return true;
  }
  void gives_back(gs_counter& counter, uint64_t bytes) {
    gs_counter_hold_memory(&counter, nullptr, -bytes);
    gs_counter_add_memory(&counter, nullptr, kGpu, -bytes);
  }

  gs_counter root{}, team{}, job{}, other{};
};

TEST_F(CounterTree, WhatIsHeldIsHeldByAllAbove) {
  ASSERT_TRUE(takes(job, 100));
  for (const gs_counter* counter : {&root, &team, &job}) {
    EXPECT_EQ(held(*counter), 100u);
    EXPECT_EQ(sum(*counter), 100u);
  }
  EXPECT_EQ(held(other), 0u);
  gives_back(job, 100);
  for (const gs_counter* counter : {&root, &team, &job}) {
    EXPECT_EQ(held(*counter), 0u);
    EXPECT_EQ(peak(*counter), 100u);
  }
}

TEST_F(CounterTree, ALimitBindsAllThatIsBelow) {
  team.memory_max = 100;
  EXPECT_TRUE(takes(job, 60));
  EXPECT_FALSE(takes(other, 41));
  EXPECT_TRUE(takes(other, 40));
  EXPECT_FALSE(takes(team, 1));
  EXPECT_TRUE(takes(root, 1'000));
}

TEST_F(CounterTree, TheCounterThatRefusesIsNamed) {
  root.memory_max = 100;
  job.memory_max = 10;
  EXPECT_EQ(gs_counter_try_memory(&job, kGpu, 11), &job);
  EXPECT_EQ(gs_counter_try_memory(&other, kGpu, 101), &root);
}

TEST_F(CounterTree, ARefusedChargeLeavesNothing) {
  root.memory_max = 100;
  ASSERT_TRUE(takes(root, 50));
  EXPECT_FALSE(takes(job, 51));
  for (const gs_counter* refused : {&job, &team}) EXPECT_EQ(held(*refused), 0u);
  EXPECT_EQ(held(root), 50u);
  EXPECT_EQ(peak(job), 0u);
  EXPECT_EQ(peak(root), 50u);
}

TEST_F(CounterTree, LimitsAreOfEachGpuAlone) {
  team.memory_max = 100;
  ASSERT_TRUE(takes(job, 100));
  EXPECT_EQ(gs_counter_try_memory(&job, kGpu + 1, 100), nullptr);
  gs_counter_hold_memory(&job, nullptr, 100);
  EXPECT_EQ(sum(team), 200u);
  EXPECT_FALSE(takes(job, 1));
}

TEST_F(CounterTree, AGpuMayHaveALimitOfItsOwn) {
  team.memory_max = 100;
  team.gpu_memory_max[kGpu] = 10;
  team.gpu_memory_max[kGpu + 1] = 1000;
  EXPECT_EQ(gs_counter_try_memory(&job, kGpu, 11), &team);
  EXPECT_TRUE(takes(job, 10));
  EXPECT_EQ(gs_counter_try_memory(&job, kGpu + 1, 101), &team);
}

TEST_F(CounterTree, NoSumPasses64Bits) {
  ASSERT_TRUE(takes(job, ~0ULL - 5));
  EXPECT_FALSE(takes(other, 6));
  EXPECT_TRUE(takes(other, 5));
}

// A program may ask for any number, and the driver takes its time to refuse it. Others who have no
// limit are not refused meanwhile, however many ask.
TEST_F(CounterTree, WhatNoGpuHasLeavesRoomForOthers) {
  for (const uint64_t hopeless : {~0ULL - 1, ~0ULL / 2, 1ULL << 62, GS_CHARGE_MAX + 1})
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(gs_counter_try_memory(&job, kGpu, gs_counter_charge_of(hopeless)), nullptr);
  EXPECT_TRUE(takes(other, 1ULL << 40));
  EXPECT_EQ(gs_counter_charge_of(1ULL << 40), 1ULL << 40);
}

// What the driver refuses was never held, so it is in no peak.
TEST_F(CounterTree, AskingIsNotHolding) {
  ASSERT_TRUE(takes(job, 10));
  ASSERT_EQ(gs_counter_try_memory(&other, kGpu, 1000), nullptr);
  ASSERT_TRUE(takes(job, 5));
  gs_counter_add_memory(&other, nullptr, kGpu, static_cast<uint64_t>(-1000));
  EXPECT_EQ(sum(team), 15u);
  EXPECT_EQ(peak(team), 15u);
  EXPECT_EQ(peak(other), 0u);
  EXPECT_EQ(held(team), 15u);
}

TEST_F(CounterTree, ContextsAreLimitedInTheSameWay) {
  team.contexts_max = 2;
  EXPECT_EQ(gs_counter_try_context(&job), nullptr);
  EXPECT_EQ(gs_counter_try_context(&other), nullptr);
  EXPECT_EQ(gs_counter_try_context(&job), &team);
  EXPECT_EQ(atomic64_read(&job.contexts), 1);
  EXPECT_EQ(atomic64_read(&root.contexts), 2);
  gs_counter_add_contexts(&other, nullptr, -1);
  EXPECT_EQ(gs_counter_try_context(&job), nullptr);
}

TEST_F(CounterTree, AMoveChangesNothingAboveBoth) {
  ASSERT_TRUE(takes(job, 100));
  gs_counter* const common = gs_counter_common(&job, &other);
  ASSERT_EQ(common, &team);
  gs_counter_add_memory(&other, common, kGpu, 100);
  gs_counter_hold_memory(&other, common, 100);
  gs_counter_hold_memory(&job, common, static_cast<uint64_t>(-100));
  gs_counter_add_memory(&job, common, kGpu, static_cast<uint64_t>(-100));
  EXPECT_EQ(held(job), 0u);
  EXPECT_EQ(sum(job), 0u);
  for (const gs_counter* holder : {&other, &team}) {
    EXPECT_EQ(held(*holder), 100u);
    EXPECT_EQ(sum(*holder), 100u);
  }
  EXPECT_EQ(peak(team), 100u);
}

TEST_F(CounterTree, OneAboveTheOtherIsTheirCommonOne) {
  EXPECT_EQ(gs_counter_common(&job, &team), &team);
  EXPECT_EQ(gs_counter_common(&team, &job), &team);
  EXPECT_EQ(gs_counter_common(&job, &job), &job);
  gs_counter alone{};
  EXPECT_EQ(gs_counter_common(&job, &alone), nullptr);
}

TEST_F(CounterTree, TheRoomIsTheLeastLimit) {
  EXPECT_EQ(gs_counter_room(&job, kGpu), GS_MEMORY_NONE);
  EXPECT_FALSE(gs_counter_is_limited(&job));
  root.memory_max = 200;
  job.memory_max = 300;
  EXPECT_EQ(gs_counter_room(&job, kGpu), 200u);
  team.gpu_memory_max[kGpu] = 100;
  EXPECT_EQ(gs_counter_room(&job, kGpu), 100u);
  EXPECT_EQ(gs_counter_room(&job, kGpu + 1), 200u);
  EXPECT_TRUE(gs_counter_is_limited(&job));
}

TEST_F(CounterTree, RefusalsAreToldToAllAbove) {
  gs_counter_refused_memory(&job);
  gs_counter_refused_context(&other);
  gs_counter_refused_control(&team);
  EXPECT_EQ(atomic64_read(&root.memory_refused), 1);
  EXPECT_EQ(atomic64_read(&team.contexts_refused), 1);
  EXPECT_EQ(atomic64_read(&job.controls_refused), 0);
}

// Eight threads charge and give back at random, in two tenants below one limit. One of them looks:
// no limit is ever passed, and in the end nothing is left.
TEST_F(CounterTree, NoLimitIsPassedWhateverIsChargedAtOnce) {
  constexpr int kThreads = 8, kCharges = 20'000;
  constexpr uint64_t kLimit = 1000;
  root.memory_max = kLimit;
  job.memory_max = kLimit / 2;
  std::atomic<int> running{kThreads};
  std::atomic<uint64_t> granted{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::minstd_rand random(static_cast<unsigned>(id) + 1);
      gs_counter& mine = id % 2 == 0 ? job : other;
      std::vector<uint64_t> held_here;
      for (int i = 0; i < kCharges; ++i) {
        const uint64_t bytes = 1 + random() % 200;
        if (takes(mine, bytes)) held_here.push_back(bytes);
        if (held_here.size() > 2 || random() % 2 == 0) {
          for (const uint64_t back : held_here) gives_back(mine, back);
          granted += held_here.size();
          held_here.clear();
        }
      }
      for (const uint64_t back : held_here) gives_back(mine, back);
      --running;
    });
  }
  while (running > 0) {
    EXPECT_LE(held(root), kLimit);
    EXPECT_LE(held(job), kLimit / 2);
    EXPECT_LE(sum(root), kLimit);
    EXPECT_LE(sum(job), kLimit / 2);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0u);
  for (const gs_counter* counter : {&root, &team, &job, &other}) {
    EXPECT_EQ(held(*counter), 0u);
    EXPECT_EQ(sum(*counter), 0u);
    EXPECT_LE(peak(*counter), kLimit);
  }
}

}  // namespace
}  // namespace gpushare
