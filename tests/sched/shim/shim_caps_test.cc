// SPDX-License-Identifier: Apache-2.0
// In virtual time: programs launch, gates close and open, and what a program did is compared with
// its tenant's cap.
#include "sched/shim/shim_caps.h"

#include <gtest/gtest.h>

#include <array>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kOne{10, 100}, kTwo{20, 200};

class ShimCapsTest : public ::testing::Test {
 protected:
  ShimCapsTest() { bucket_.configure(30ms, 100ms, 30ms, now_); }

  ShimCaps::Client& add(const ProcessId& process) {
    clients_.push_back({.process = process, .tenant = 1, .gpus = {0}});
    return clients_.back();
  }
  // A client whose gate is shut, as its tenant is overdrawn by so much less the burst.
  ShimCaps::Client& add_overdrawn(Nanos charge) {
    ShimCaps::Client& client = add(kOne);
    step();
    bucket_.charge(charge);
    step();
    EXPECT_TRUE(caps_.is_shut(kOne));
    return client;
  }
  Nanos step() { return caps_.step(now_, clients_, find_) - now_; }
  // Steps every `every`, launches wherever a gate is open; how long each client's gate was open.
  Nanos open_during(Nanos length, Nanos every = 5ms) {
    Nanos open{};
    for (const Time end = now_ + length; now_ < end; now_ += every) {
      step();
      for (ShimCaps::Client& client : clients_)
        if (!caps_.is_shut(client.process)) ++client.launches;
      if (!caps_.is_shut(clients_.front().process)) open += every;
    }
    return open;
  }

  Time now_{Nanos{1'000'000'000'000}};
  TokenBucket bucket_{};
  bool has_cap_ = true;
  ShimCaps caps_;
  std::vector<ShimCaps::Client> clients_;
  const ShimCaps::FindBudget find_ = [this](uint32_t tenant, uint32_t gpu) {
    std::optional<ShimCaps::Budget> budget;
    if (has_cap_ && tenant == 1 && gpu == 0)
      budget = {.cap = {.fraction = 0.3, .period = 100ms, .burst = 30ms}, .bucket = &bucket_};
    return budget;
  };
};

// A program that queues 512 kernels at once and waits for them, and the GPU that runs them: beyond
// a closed gate without credit, and up to the next wait with it.
class QueueingProgram : public ShimCapsTest {
 protected:
  // The part of `length` in which the GPU works for it.
  double share(Nanos kernel, bool has_credit, Nanos length = 20s) {
    ShimCaps::Client& client = add(kOne);
    const Nanos group = kernel * ((250us + kernel - 1ns) / kernel);
    Nanos work{}, in_group{}, worked{}, used{};
    Time next = now_, queued = now_;
    const Time begin = now_ + 1s;
    for (const Time end = begin + length; now_ < end; now_ += kTick) {
      const bool may_queue = !caps_.is_shut(kOne) && (work == Nanos{} || keeps_queueing_);
      if (may_queue && work < 512 * kernel) {
        client.launches += static_cast<uint64_t>((512 * kernel - work) / kernel);
        work = 512 * kernel;
        queued = now_;
      }
      if (has_credit)
        client.on_gpu = {.reached = static_cast<uint32_t>(worked / std::max<Nanos>(group, 1ms)),
                         .waits = now_ - queued > 1ms && work > Nanos{} && waits_,
                         .launch = kernel};
      if (now_ >= next) next = caps_.step(now_, clients_, find_);
      const bool goes_on = !has_credit || in_group > Nanos{} || !caps_.is_shut(kOne);
      if (work == Nanos{} || !goes_on) continue;
      if (in_group == Nanos{}) in_group = std::min(group, work);
      in_group -= std::min(kTick, in_group);
      work -= std::min(kTick, work);
      worked += kTick;
      if (now_ >= begin) used += kTick;
    }
    return static_cast<double>(used.count()) / static_cast<double>(length.count());
  }
  static constexpr Nanos kTick = 50us;
  bool waits_ = true, keeps_queueing_ = false;
};

TEST_F(QueueingProgram, GetsItsFractionWithCredit) { EXPECT_NEAR(share(200us, true), 0.3, 0.01); }
TEST_F(QueueingProgram, GetsItsFractionOfLongKernels) {
  EXPECT_NEAR(share(1850us, true), 0.3, 0.01);
}
TEST_F(QueueingProgram, GetsItsFractionOfShortKernels) {
  EXPECT_NEAR(share(10us, true), 0.3, 0.01);
}
TEST_F(QueueingProgram, IsChargedForWhatItQueuedWhenItDoesNotWait) {
  waits_ = false;
  EXPECT_NEAR(share(200us, true), 0.3, 0.01);
}
TEST_F(QueueingProgram, GetsItsFractionWhenItsQueueNeverRunsEmpty) {
  keeps_queueing_ = true;
  EXPECT_NEAR(share(200us, true), 0.3, 0.01);
}
TEST_F(QueueingProgram, GetsMoreByTheHostsGateAlone) {
  keeps_queueing_ = true;
  EXPECT_GT(share(200us, false), 0.5);
}

TEST_F(ShimCapsTest, WhoLaunchesWithoutAPauseGetsItsFraction) {
  add(kOne);
  open_during(1s);
  const double share = open_during(10s).count() / 10e9;
  EXPECT_NEAR(share, 0.3, 0.015);
}

TEST_F(ShimCapsTest, ClientsOfATenantAreChargedOnceAndShutTogether) {
  add(kOne);
  add(kTwo);
  open_during(1s);
  EXPECT_NEAR(open_during(10s).count() / 10e9, 0.3, 0.015);
  EXPECT_EQ(caps_.is_shut(kOne), caps_.is_shut(kTwo));
}

TEST_F(ShimCapsTest, WhoDoesNotLaunchIsNotCharged) {
  add(kOne);
  for (int i = 0; i < 1000; ++i, now_ += 5ms) step();
  EXPECT_EQ(bucket_.refill(now_), 30ms);
}

TEST_F(ShimCapsTest, ALaunchNowAndThenCostsTheLinger) {
  ShimCaps::Client& client = add(kOne);
  step();
  now_ += 1s;
  step();
  ++client.launches;
  now_ += 5ms;
  step();
  const Nanos before = bucket_.tokens();
  EXPECT_EQ(before, 30ms - 5ms);
  for (int i = 0; i < 4; ++i) {
    now_ += 5ms;
    step();
  }
  now_ += 1ms;
  // 5 ms when it was seen and kLinger after it, less what came back.
  EXPECT_EQ(30ms - bucket_.refill(now_), 25ms - 6300us);
}

TEST_F(ShimCapsTest, ALaunchAfterARestIsNotChargedForTheRest) {
  ShimCaps::Client& client = add(kOne);
  step();
  ++client.launches;
  now_ += 100ms;
  step();
  EXPECT_EQ(bucket_.tokens(), 30ms - ShimCaps::kLinger);
}

TEST_F(ShimCapsTest, WhoWaitsAtTheGateIsAtWorkWhenItOpens) {
  ShimCaps::Client& client = add_overdrawn(40ms);
  ++client.launches;  // it stands there
  while (caps_.is_shut(kOne)) {
    now_ += 5ms;
    step();
  }
  const Nanos tokens = bucket_.tokens();
  now_ += 5ms;
  step();
  EXPECT_LT(bucket_.tokens(), tokens);
}

TEST_F(ShimCapsTest, AStandstillIsNotCharged) {
  ShimCaps::Client& client = add(kOne);
  step();
  for (int i = 0; i < 2; ++i, now_ += 5ms) {
    ++client.launches;
    step();
  }
  now_ += 10s;
  ++client.launches;
  step();
  EXPECT_GT(bucket_.tokens(), -(ShimCaps::kCalmLook + 2 * ShimCaps::kLinger));
}

TEST_F(ShimCapsTest, AShutGateIsNotCharged) {
  ShimCaps::Client& client = add_overdrawn(1s);
  const Nanos tokens = bucket_.tokens();
  ++client.launches;
  now_ += 10ms;
  step();
  EXPECT_EQ(bucket_.tokens(), tokens + 3ms);
}

TEST_F(ShimCapsTest, WithoutACapNobodyWaits) {
  has_cap_ = false;
  add(kOne);
  EXPECT_EQ(open_during(1s), 1s);
  has_cap_ = true;
  bucket_.charge(1s);
  step();
  EXPECT_TRUE(caps_.is_shut(kOne));
  has_cap_ = false;
  step();
  EXPECT_FALSE(caps_.is_shut(kOne));
}

TEST_F(ShimCapsTest, LooksOftenOnlyWhileItMatters) {
  ShimCaps::Client& client = add(kOne);
  EXPECT_EQ(step(), ShimCaps::kCalmLook);
  ++client.launches;
  now_ += 5ms;
  EXPECT_EQ(step(), ShimCaps::kBusyLook);
}

// Its launch counter stands still, and its server works as long as its gate is open.
TEST_F(ShimCapsTest, WhoSaysThatItLaunchesNothingIsHeldToItsFractionByItsServersUse) {
  add(kOne);
  Nanos open{};
  bool was_doubted = false;
  for (const Time end = now_ + 600s; now_ < end; now_ += 5ms) {
    const bool is_open = !caps_.is_shut(kOne);
    if (is_open) open += 5ms;
    const std::array<Nanos, 1> used{is_open ? 5ms : 0ms};
    caps_.step(now_, clients_, find_, used);
    was_doubted |= caps_.is_doubted(kOne);
  }
  EXPECT_LT(open / 600.0s, 0.33);
  EXPECT_TRUE(was_doubted);
}

TEST_F(ShimCapsTest, BesideOneThatSaysWhatItDoesNobodyIsDoubted) {
  add(kOne);
  add(kTwo).tenant = 2;  // without a cap
  for (const Time end = now_ + 100s; now_ < end; now_ += 5ms) {
    ++clients_[1].launches;
    const std::array<Nanos, 1> used{5ms};
    caps_.step(now_, clients_, find_, used);
    ASSERT_FALSE(caps_.is_doubted(kOne));
  }
  EXPECT_EQ(bucket_.refill(now_), 30ms) << "nothing is charged";
}

// What the server has used in a standstill of the agent nobody could say that it launched.
TEST_F(ShimCapsTest, AStandstillIsNobodysLie) {
  add(kOne);
  add(kTwo).tenant = 2;
  const auto work = [&](Nanos used) {
    ++clients_[1].launches;
    caps_.step(now_, clients_, find_, std::array{used});
    ASSERT_FALSE(caps_.is_doubted(kOne));
  };
  for (int i = 0; i < 100; ++i, now_ += 5ms) work(5ms);
  now_ += 60s;
  work(60s);
  for (const Time end = now_ + 20s; now_ < end; now_ += 5ms) work(5ms);
}

// The use of a lone server goes on being counted for 3 s after its clients rest.
TEST_F(ShimCapsTest, UseThatIsKnownLateIsNobodysLie) {
  add(kOne);
  for (int round = 0; round < 30; ++round)
    for (int i = 0; i < 2000; ++i, now_ += 5ms) {  // of 10 s it works half a second
      if (i < 100) ++clients_[0].launches;
      const std::array<Nanos, 1> used{i < 700 ? 5ms : 0ms};
      caps_.step(now_, clients_, find_, used);
      ASSERT_FALSE(caps_.is_doubted(kOne)) << round << ", " << i;
    }
}

}  // namespace
}  // namespace gpushare
