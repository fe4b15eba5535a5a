// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/plan.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Action = MpsPlan::Action;

class MpsPlanTest : public ::testing::Test {
 protected:
  Action decide(Nanos passed = {}) {
    now_ += passed;
    return plan_.decide(now_, seen_);
  }
  void run_for(const std::string& gpus, std::size_t clients = 0) {
    plan_.want(gpus);
    seen_ = {.has_program = true, .gpus = gpus, .clients = clients};
    EXPECT_EQ(decide(), Action::kAsk);
    EXPECT_EQ(plan_.state(), MpsState::kRunning);
  }

  Time now_{1000s};
  MpsPlan plan_;
  MpsPlan::Seen seen_{.has_program = true};
};

TEST_F(MpsPlanTest, NothingIsWantedAndNothingIsDone) {
  EXPECT_EQ(decide(), Action::kNone);
  EXPECT_EQ(plan_.state(), MpsState::kOff);
  EXPECT_EQ(plan_.next(), Time::max());
}

TEST_F(MpsPlanTest, StartsItOnceAndWaits) {
  plan_.want("");
  EXPECT_EQ(decide(), Action::kStart);
  EXPECT_EQ(decide(20ms), Action::kNone);
  EXPECT_EQ(plan_.state(), MpsState::kStarting);
  seen_.gpus = "";
  EXPECT_EQ(decide(20ms), Action::kAsk);
  EXPECT_EQ(plan_.state(), MpsState::kRunning);
}

TEST_F(MpsPlanTest, WithoutTheProgramItLooksNowAndThen) {
  seen_.has_program = false;
  plan_.want("");
  EXPECT_EQ(decide(), Action::kNone);
  EXPECT_EQ(plan_.state(), MpsState::kMissing);
  EXPECT_EQ(plan_.next(), now_ + MpsPlan::kProgramLook);
  seen_.has_program = true;
  EXPECT_EQ(decide(MpsPlan::kProgramLook), Action::kStart);
}

TEST_F(MpsPlanTest, TakesUpTheDaemonThatIsThere) {
  run_for("GPU-a", 3);
  EXPECT_EQ(plan_.deaths(), 0u);
}

TEST_F(MpsPlanTest, AsksOftenWhileThereAreClients) {
  run_for("", 1);
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kAsk);
  seen_.clients = 0;
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kAsk);
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kNone);
  plan_.ask_soon();
  EXPECT_EQ(decide(), Action::kAsk);
}

// It was idle when it was asked; the answer came later, and names clients.
TEST_F(MpsPlanTest, AsksOftenAsSoonAsThereAreClients) {
  run_for("", 0);
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kNone) << "idle";
  seen_.clients = 2;
  EXPECT_EQ(decide(), Action::kAsk);
}

TEST_F(MpsPlanTest, NothingElseIsDoneWhileAnAnswerIsDue) {
  run_for("", 1);
  seen_.is_asking = true;
  EXPECT_EQ(decide(10min), Action::kNone);
}

TEST_F(MpsPlanTest, ADaemonThatHadLivedIsStartedAgainAtOnce) {
  run_for("");
  decide(MpsPlan::kYoung);
  seen_.gpus.reset();
  EXPECT_EQ(decide(100ms), Action::kStart);
  EXPECT_EQ(plan_.deaths(), 1u);
}

TEST_F(MpsPlanTest, ADaemonThatDiesYoungAgainAndAgainIsStartedLessAndLessOften) {
  run_for("");
  Nanos longest{};
  for (int i = 0; i < 12; ++i) {
    seen_.gpus.reset();
    Nanos waited{};
    while (decide(100ms) != Action::kStart) waited += 100ms;
    EXPECT_GE(waited, longest);
    longest = waited;
    seen_.gpus = "";
    decide(100ms);
  }
  EXPECT_GE(longest, MpsPlan::kLongestPause - 1s);
  EXPECT_LE(longest, MpsPlan::kLongestPause);
}

TEST_F(MpsPlanTest, ADaemonThatDoesNotComeUpIsTriedAgainLater) {
  plan_.want("");
  EXPECT_EQ(decide(), Action::kStart);
  EXPECT_EQ(decide(MpsPlan::kToStart), Action::kStart);
  EXPECT_EQ(decide(MpsPlan::kToStart), Action::kNone);
  EXPECT_EQ(decide(MpsPlan::kFirstPause), Action::kStart);
}

TEST_F(MpsPlanTest, ARefusedStartIsTriedAgainSoonerThanASilentOne) {
  plan_.want("");
  EXPECT_EQ(decide(), Action::kStart);
  plan_.start_failed(now_);
  EXPECT_EQ(decide(20ms), Action::kStart);
  plan_.start_failed(now_);
  EXPECT_EQ(decide(20ms), Action::kNone);
  EXPECT_EQ(decide(MpsPlan::kFirstPause), Action::kStart);
}

TEST_F(MpsPlanTest, ADaemonForOtherGpusStaysForItsClientsAndIsReplacedWhenTheyHaveGone) {
  run_for("GPU-a", 2);
  plan_.want("GPU-a,GPU-b");
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kAsk);
  EXPECT_EQ(plan_.state(), MpsState::kOther);
  seen_.clients = 0;
  EXPECT_EQ(decide(), Action::kQuit);
  EXPECT_EQ(decide(100ms), Action::kNone);
  seen_.gpus.reset();
  EXPECT_EQ(decide(), Action::kStart);
  EXPECT_EQ(plan_.deaths(), 0u);
}

TEST_F(MpsPlanTest, ADaemonWhoseClientsAreNotKnownIsNotEnded) {
  plan_.want("GPU-b");
  seen_.gpus = "GPU-a";
  seen_.clients.reset();
  EXPECT_EQ(decide(), Action::kAsk);
  EXPECT_EQ(decide(1s), Action::kNone);
}

TEST_F(MpsPlanTest, ADaemonThatIsNotWantedAnyMoreEndsWithItsLastClient) {
  run_for("", 1);
  plan_.want(std::nullopt);
  EXPECT_EQ(decide(MpsPlan::kAskBusy), Action::kAsk);
  seen_.clients = 0;
  EXPECT_EQ(decide(), Action::kQuit);
  seen_.gpus.reset();
  EXPECT_EQ(decide(), Action::kNone);
  EXPECT_EQ(plan_.state(), MpsState::kOff);
}

TEST(MpsGpus, AllOfTheMachineAreNotNamed) {
  GpuInfo first, second;
  first.uuid = "GPU-a";
  first.pci = "0000:5b:00.0";
  second.uuid = "GPU-b";
  second.pci = "0000:1b:00.0";
  EXPECT_EQ(mps_gpus({first, second}, 2), "");
  EXPECT_EQ(mps_gpus({first, second}, 3), "GPU-b,GPU-a");
  EXPECT_EQ(mps_gpus({first}, 2), "GPU-a");
  GpuInfo unknown;
  unknown.pci = "0000:0b:00.0";
  EXPECT_EQ(mps_gpus({first, unknown, second}, 3), "");
  EXPECT_EQ(mps_gpus({first, unknown, second}, 4), "GPU-b,GPU-a");
}

TEST(MpsGpus, AClientSeesNoFewerGpusThanItWouldAndNoOthers) {
  const std::string some = "GPU-11111111-aaaa,GPU-22222222-bbbb";
  EXPECT_TRUE(may_be_client("", std::nullopt));
  EXPECT_TRUE(may_be_client("", "1"));
  EXPECT_FALSE(may_be_client(some, std::nullopt));
  EXPECT_FALSE(may_be_client(some, ""));
  EXPECT_FALSE(may_be_client(some, "0"));
  EXPECT_TRUE(may_be_client(some, "GPU-22222222-bbbb"));
  EXPECT_TRUE(may_be_client(some, "GPU-22222222,GPU-11111111"));
  EXPECT_FALSE(may_be_client(some, "GPU-22222222-bbbb,GPU-33333333-cccc"));
  EXPECT_FALSE(may_be_client(some, "GPU-"));
}

}  // namespace
}  // namespace gpushare
