// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Client = ShimTurns::Client;

Client client(pid_t pid, uint32_t tenant, uint32_t weight = 100,
              Priority priority = Priority::kNormal) {
  return {.process = {pid, 1},
          .tenant = tenant,
          .weight = weight,
          .priority = priority,
          .is_at_work = true,
          .is_busy = true};
}

class ShimTurnsTest : public testing::Test {
 protected:
  // Returns for how long each could launch, by process, with steps as often as they are asked for
  // and at least every 5 ms.
  std::map<pid_t, Nanos> run(Nanos length, const std::vector<Client>& clients) {
    std::map<pid_t, Nanos> open;
    for (const Time end = now_ + length; now_ < end;) {
      const Time next = std::min({turns_.step(now_, clients), now_ + 5ms, end});
      for (const Client& one : clients)
        if (!turns_.is_shut(one.process)) open[one.process.pid] += next - now_;
      now_ = next;
    }
    return open;
  }
  bool is_shut(const std::vector<Client>& clients, pid_t pid) {
    turns_.step(now_, clients);
    return turns_.is_shut({pid, 1});
  }
  static double part(Nanos time, Nanos of) {
    return static_cast<double>(time.count()) / static_cast<double>(of.count());
  }

  ShimTurns turns_;
  Time now_{1s};
};

TEST_F(ShimTurnsTest, TenantsThatShareSmsHaveTimeByWeight) {
  auto open = run(10s, {client(1, 1, 300), client(2, 2, 100)});
  EXPECT_NEAR(part(open[1], 10s), 0.75, 0.01);
  EXPECT_NEAR(part(open[2], 10s), 0.25, 0.01);
  open = run(10s, {client(1, 1, 200), client(2, 2, 100), client(3, 3, 100)});
  EXPECT_NEAR(part(open[1], 10s), 0.5, 0.01);
  EXPECT_NEAR(part(open[3], 10s), 0.25, 0.01);
}

TEST_F(ShimTurnsTest, TheProcessesOfATenantHaveItsTurnTogether) {
  auto open = run(10s, {client(1, 1, 300), client(2, 2, 100), client(3, 2, 100)});
  EXPECT_NEAR(part(open[1], 10s), 0.75, 0.01);
  EXPECT_EQ(open[2], open[3]);
}

TEST_F(ShimTurnsTest, EqualWeightsOtherSmsAndTargetsAreLeftAlone) {
  Client far = client(2, 2), elsewhere = client(2, 2), serving = client(2, 2);
  far.gpu = 1;
  elsewhere.set = 1;
  serving.has_target = true;
  for (const auto& [what, one, weight] :
       {std::tuple("equal weights", client(2, 2), 100U), std::tuple("another GPU", far, 300U),
        std::tuple("other SMs", elsewhere, 300U), std::tuple("a target", serving, 300U)}) {
    auto open = run(1s, {client(1, 1, weight), one});
    EXPECT_EQ(open[1], 1s) << what;
    EXPECT_EQ(open[2], 1s) << what;
  }
}

TEST_F(ShimTurnsTest, WhatATenantDoesNotUseGoesToTheOthersAndIsNotMadeUpFor) {
  Client heavy = client(1, 1, 300);
  heavy.is_at_work = heavy.is_busy = false;
  EXPECT_EQ(run(5s, {heavy, client(2, 2, 100)})[2], 5s);
  heavy.is_at_work = heavy.is_busy = true;
  auto open = run(5s, {heavy, client(2, 2, 100)});
  EXPECT_NEAR(part(open[1], 5s), 0.75, 0.01) << "it has no claim on what went before";
}

TEST_F(ShimTurnsTest, WhoRestsBetweenTwoLaunchesKeepsItsTurns) {
  Client heavy = client(1, 1, 300);
  heavy.is_at_work = false;  // at each look
  auto open = run(10s, {heavy, client(2, 2, 100)});
  EXPECT_NEAR(part(open[2], 10s), 0.25, 0.01);
}

TEST_F(ShimTurnsTest, WhatRunsOnAfterATurnIsChargedToIt) {
  Client heavy = client(1, 1, 100), light = client(2, 2, 300);
  heavy.runs_on = 20ms;  // kernels of 40 ms
  auto open = run(20s, {heavy, light});
  const Nanos turns = open[1] / 10ms * 20ms;  // what it had beyond its turns
  EXPECT_NEAR(part(open[1] + turns, open[1] + turns + open[2]), 0.25, 0.02);
}

// Neither the agent nor, where the machine was paused, anybody else went on in the 10 s.
TEST_F(ShimTurnsTest, AStandstillIsNobodysTurn) {
  const std::vector<Client> both{client(1, 1, 300), client(2, 2, 100)};
  run(95ms, both);
  now_ += 10s;
  auto open = run(1s, both);
  EXPECT_NEAR(part(open[1], 1s), 0.75, 0.05);
  EXPECT_NEAR(part(open[2], 1s), 0.25, 0.05);
}

TEST_F(ShimTurnsTest, WhoeverIsAtWorkGoesBeforeLowerPriorities) {
  std::vector<Client> all{client(1, 1, 100, Priority::kHigh), client(2, 2),
                          client(3, 3, 100, Priority::kIdle)};
  EXPECT_FALSE(is_shut(all, 1));
  EXPECT_TRUE(is_shut(all, 2));
  EXPECT_TRUE(is_shut(all, 3));
  EXPECT_EQ(turns_.step(now_, all), now_ + ShimTurns::kLook) << "its end may go unsaid";
  all[0].is_at_work = false;
  EXPECT_FALSE(is_shut(all, 2)) << "at once, not when it has rested for a while";
  all[0].is_busy = false;
  EXPECT_FALSE(is_shut(all, 2));
  EXPECT_TRUE(is_shut(all, 3));
  all[1].is_at_work = all[1].is_busy = false;
  EXPECT_FALSE(is_shut(all, 3));
  EXPECT_FALSE(is_shut(all, 1)) << "whoever comes to work is never found standing";
}

// It writes a token each 8 ms, with 200 us between two of them; the others' kernels take 12 ms.
TEST_F(ShimTurnsTest, WhoIsBackBeforeALaunchCouldEndIsWaitedFor) {
  Client high = client(1, 1, 100, Priority::kHigh), low = client(2, 2);
  low.runs_on = 6ms;
  high.is_at_work = false;
  high.rests = 200us;
  high.rested = 300us;
  EXPECT_TRUE(is_shut({high, low}, 2));
  EXPECT_EQ(turns_.step(now_, std::vector{high, low}), now_ + 100us) << "when it is over";
  high.rested = 400us;
  EXPECT_FALSE(is_shut({high, low}, 2)) << "it does not come";
  high.rested = 300us;
  low.runs_on = 50us;
  EXPECT_FALSE(is_shut({high, low}, 2)) << "a short kernel ends before";
  high.runs_on = 6ms;
  EXPECT_FALSE(is_shut({high, low}, 2)) << "however long its own kernels take";
  low.runs_on = 6ms;
  high.rests = 0ns;
  high.rested = 0ns;
  EXPECT_FALSE(is_shut({high, low}, 2)) << "nothing is known of it";
}

TEST_F(ShimTurnsTest, OnlyThoseAreHeardForWhomOthersGiveWay) {
  turns_.step(now_, std::vector{client(1, 1, 100, Priority::kHigh), client(2, 2)});
  EXPECT_TRUE(turns_.is_heard({1, 1}));
  EXPECT_FALSE(turns_.is_heard({2, 1}));
  turns_.step(now_, std::vector{client(1, 1, 100, Priority::kHigh)});
  EXPECT_FALSE(turns_.is_heard({1, 1})) << "there is nobody else";
}

TEST_F(ShimTurnsTest, WeightsHoldAmongThoseOfOnePriority) {
  auto open = run(10s, {client(1, 1, 300), client(2, 2, 100), client(3, 3, 1000, Priority::kIdle)});
  EXPECT_NEAR(part(open[1], 10s), 0.75, 0.01);
  EXPECT_EQ(open[3], 0s);
}

}  // namespace
}  // namespace gpushare
