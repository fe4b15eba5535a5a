// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/ended.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <set>
#include <vector>

#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::event;
using test::FakeGpu;
using test::program;

constexpr ProcessId kFirst{100, 1}, kSecond{200, 2};
constexpr test::Handles kHandles{
    .client = 0xC1D00001, .device = 1, .group = 0x10, .first_channel = 0x20},
    kOthers{.client = 0xC1D00002, .device = 1, .group = 0x10, .first_channel = 0x20};

std::set<ObjectRef> objects_of(const test::Handles& handles) {
  return {{handles.client, handles.client}, {handles.client, handles.group}};
}

class EndedProcessesTest : public ::testing::Test {
 protected:
  EndedProcessesTest() {
    clock_.advance(1s);
    gpu_.there.emplace(objects_of(kHandles));
    for (const DriverEvent& one : program(kFirst, kHandles)) registry_.apply(one);
  }
  void end(const ProcessId& process) { registry_.end(process, clock_.now()); }
  bool is_there(const ProcessId& process) const { return registry_.find(process) != nullptr; }

  FakeGpu gpu_;
  ManualClock clock_;
  Registry registry_{gpu_.gpus()};
  EndedProcesses ended_{gpu_, registry_, clock_, DriverCalls::kInStep};
};

TEST_F(EndedProcessesTest, NothingIsAskedWhileAllLive) {
  ended_.look();
  EXPECT_EQ(gpu_.asked_for_objects, 0);
  EXPECT_EQ(ended_.next(), Time::max());
}

TEST_F(EndedProcessesTest, WhoStillHasSomethingIsAskedForLessAndLessOften) {
  end(kFirst);
  for (const Time until = clock_.now() + 1min; clock_.now() < until; clock_.advance(1ms))
    ended_.look();
  EXPECT_TRUE(is_there(kFirst));
  EXPECT_NEAR(gpu_.asked_for_objects, 60 + 8, 3) << "a second apart, after eight in the first";
  EXPECT_LE(ended_.next() - clock_.now(), 1s);
  EXPECT_GT(ended_.next(), clock_.now() - 1ms);
  gpu_.there->value().clear();
  clock_.advance(1s);
  ended_.look();
  EXPECT_FALSE(is_there(kFirst));
  EXPECT_EQ(ended_.next(), Time::max());
}

TEST_F(EndedProcessesTest, AnotherEndIsAskedForAtOnce) {
  for (const DriverEvent& one : program(kSecond, kOthers)) registry_.apply(one);
  end(kFirst);
  for (const Time until = clock_.now() + 1min; clock_.now() < until; clock_.advance(10ms))
    ended_.look();
  end(kSecond);
  const int before = gpu_.asked_for_objects;
  ended_.look();
  EXPECT_EQ(gpu_.asked_for_objects, before + 1);
  EXPECT_FALSE(is_there(kSecond));
  EXPECT_TRUE(is_there(kFirst));
}

TEST_F(EndedProcessesTest, WhereTheDriverDoesNotTellItsEndIsAll) {
  gpu_.there.reset();
  end(kFirst);
  ended_.look();
  EXPECT_FALSE(is_there(kFirst));
}

TEST_F(EndedProcessesTest, ARefusalProvesNothing) {
  gpu_.there.emplace(make_error(std::errc::io_error, "ask"));
  end(kFirst);
  for (int i = 0; i < 100; ++i, clock_.advance(1s)) ended_.look();
  EXPECT_TRUE(is_there(kFirst));
}

// One of two clients that it has left.
TEST_F(EndedProcessesTest, EachClientIsJudgedByItself) {
  for (const DriverEvent& one : program(kFirst, kOthers)) registry_.apply(one);
  end(kFirst);
  ended_.look();
  ASSERT_EQ(registry_.holder(kFirst, 0)->groups.size(), 1u);
  EXPECT_EQ(registry_.holder(kFirst, 0)->groups[0].ref.client, kHandles.client);
}

TEST_F(EndedProcessesTest, WhatAnHeirHasFreedIsAskedForAtOnce) {
  end(kFirst);
  for (const Time until = clock_.now() + 1min; clock_.now() < until; clock_.advance(10ms))
    ended_.look();
  registry_.apply(event(kSecond, ObjectFreed{kHandles.client, kHandles.client}));
  ended_.look();
  EXPECT_TRUE(is_there(kFirst)) << "the driver has it still";
  gpu_.there->value().clear();
  registry_.apply(event(kSecond, ObjectFreed{kHandles.client, kHandles.client}));
  ended_.look();
  EXPECT_FALSE(is_there(kFirst));
}

// The driver answers late, and what it says is of the time when it was asked.
class LateGpu final : public FakeGpu {
 public:
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override {
    auto answer = FakeGpu::missing(objects);
    asked.release();
    may_answer.acquire();
    return answer;
  }
  std::binary_semaphore asked{0}, may_answer{0};
};

TEST(EndedProcessesOnThreads, WhoEndsWhileItIsAskedIsAskedForAgain) {
  LateGpu gpu;
  ManualClock clock;
  clock.advance(1s);
  gpu.there.emplace();  // nothing
  Registry registry{gpu.gpus()};
  for (const DriverEvent& one : program(kFirst, kHandles)) registry.apply(one);
  for (const DriverEvent& one : program(kSecond, kOthers)) registry.apply(one);
  EndedProcesses ended{gpu, registry, clock, DriverCalls::kOnThreads};
  registry.end(kFirst, clock.now());
  ended.look();
  gpu.asked.acquire();
  EXPECT_FALSE(ended.rest(0ns));
  registry.end(kSecond, clock.now());
  ended.look();
  gpu.there.emplace(objects_of(kOthers));
  gpu.may_answer.release();
  ASSERT_TRUE(ended.rest(1min));
  ended.look();  // takes the answer, and asks again, of the second one
  EXPECT_EQ(registry.find(kFirst), nullptr);
  EXPECT_NE(registry.find(kSecond), nullptr);
  gpu.asked.acquire();
  gpu.may_answer.release();
  ASSERT_TRUE(ended.rest(1min));
  ended.look();
  EXPECT_NE(registry.find(kSecond), nullptr);
}

}  // namespace
}  // namespace gpushare
