// SPDX-License-Identifier: Apache-2.0
// Turns: of clients of MPS on the same SMs, at an iteration, and on a GPU that is shared by time.
#include "tests/sched/mps/fake_mps_host.h"
#include "tests/sched/orders/jobs.h"
#include "tests/sched/shim/shim_link_rig.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

// For half a second a program of higher priority stood behind their kernels (H100).
TEST_F(ShimLinkTest, WhoHasBegunToLaunchTakesTurnsBeforeItsServerHasNamedIt) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  const std::vector<Setting> all{{"sm_percent", "50"}, {"sm_min", "100"}};
  std::vector<Setting> urgent = all;
  urgent.push_back({"priority", "high"});
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, all, false));
  ASSERT_TRUE(tenants_.set("urgent", urgent, true));
  MpsLink mps(std::make_unique<FakeMpsHost>(),
              [](const ProcessId& process) { return MpsClient{process, "a", "spin"}; });
  mps.want("", true);
  for (Time now{1s}; mps.status().state != MpsState::kRunning; now += 1ms) mps.step(now);
  link_->set_mps(&mps);
  OtherProcess other(path_);
  ASSERT_TRUE(tenants_.attach(other.id(), "urgent"));
  other.connect([&] { link_->serve(); });
  ASSERT_NE(other.slot(), nullptr);
  ASSERT_NE(connect(), nullptr);
  for (ShimSlot* slot : {slot_, other.slot()}) {
    slot->stripes[0].launches = 1;
    slot->credit.held = ShimHeld::kOnGpu;
  }
  step();
  step();
  EXPECT_FALSE(is_closed());
  other.slot()->waits = 1;
  step();
  EXPECT_EQ(other.slot()->credit.tells, 1u);
  EXPECT_TRUE(is_closed());
  // It is frozen, and waits for its work all the while.
  link_->takes_freeze(other.id(), FreezeReason::kUser);
  link_->finish(clock_.now());
  EXPECT_FALSE(is_closed()) << "nobody stands still for one that does";
}

TEST_F(ShimLinkTest, APlanHoldsAProcessAtAnIterationAndLetsItGo) {
  class Holds final : public Policy {
   public:
    Plan plan(const Snapshot& snapshot) override {
      Plan plan;
      for (const ProcessView& process : snapshot.processes)
        if (holds) plan.decisions.push_back({.process = process.id, .run_until = 7});
      return plan;
    }
    bool holds = true;
  };
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  auto policy = std::make_unique<Holds>();
  Holds* const holds = policy.get();
  policy_ = std::move(policy);
  launch();
  step();
  EXPECT_EQ(slot_->iterations.run_until, 7u);
  EXPECT_FALSE(is_closed()) << "nothing was planned for its tenant";
  slot_->iterations.run_until = 9;
  step();
  EXPECT_EQ(slot_->iterations.run_until, 7u);
  holds->holds = false;
  step();
  EXPECT_EQ(slot_->iterations.run_until, 0u);
}

// Where a GPU shared by time takes turns. No policy of the real ones needs to be there for it.
class ShimLinkTurnsTest : public ShimLinkTest {
 protected:
  ShimLinkTurnsTest() {
    Config config =
        parse_config("[gpu.0]\npolicy = 'scripted'\n", "gpushare.toml", policies_).value();
    link_->set_gpus(gpus_, config);
    policy_ = config.gpu(0).policy.make(gpu_);
  }
  const ProcessId own_{::getpid(), start_ticks_of(::getpid())};
  const std::vector<PolicyEntry> policies_{
      *find_policy(every_policy(), "fair"),
      ScriptedPolicy::entry("scripted", [](const Snapshot&) { return Plan{}; })};
};

TEST_F(ShimLinkTurnsTest, AProcessWaitsAtItsGateForItsFirstTurn) {
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimIterations);
  EXPECT_TRUE(is_closed()) << "from the start";
  step();
  EXPECT_TRUE(is_closed());
  link_->hold({.process = own_, .run_until = 1, .is_gate_closed = true});
  step();
  EXPECT_TRUE(is_closed());
  EXPECT_EQ(slot_->iterations.run_until, 1u);
  link_->hold({.process = own_});
  EXPECT_FALSE(is_closed()) << "at once, without a step";
  EXPECT_EQ(slot_->iterations.run_until, 0u);
  slot_->gate.fetch_add(1);
  slot_->iterations.run_until = 9;
  step();
  EXPECT_FALSE(is_closed()) << "what it writes itself lasts until the next step";
  EXPECT_EQ(slot_->iterations.run_until, 0u);
}

// Nothing tells that it is on a GPU: the observer is blind, or it came through another door.
TEST_F(ShimLinkTurnsTest, OneThatIsSeenOnNoGpuIsNotKeptForEver) {
  ASSERT_NE(connect(), nullptr);
  step();
  slot_->waiting = 1;
  const Time end = MonotonicClock().now() + 20s;
  while (is_closed() && MonotonicClock().now() < end) step();
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTurnsTest, WhereNobodyTakesTurnsAnyMoreAllGoIn) {
  ASSERT_NE(connect(), nullptr);
  step();
  ASSERT_TRUE(is_closed());
  share("");
  step();
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTurnsTest, WhatItSaysIsSeenBetweenTwoSteps) {
  ASSERT_NE(connect(), nullptr);
  step();
  publish(slot_->iterations, {.source = ShimSource::kRecognised, .begun = 7, .began_ns = 99});
  slot_->iterations.waiting_since_ns = 123;
  slot_->waiting = 2;
  const SlotReading said = link_->look(own_).value();
  EXPECT_EQ(said.begun, 7u);
  EXPECT_EQ(said.began, Time{99ns});
  EXPECT_EQ(said.at_boundary, Time{123ns});
  EXPECT_TRUE(said.is_at_gate);
  EXPECT_FALSE(link_->look({1, 1}));
}

}  // namespace
}  // namespace gpushare::test
