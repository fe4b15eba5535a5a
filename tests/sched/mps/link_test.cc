// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/link.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/sched/mps/fake_mps_host.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

using test::FakeMpsHost;

constexpr ProcessId kDaemon = FakeMpsHost::kDaemon, kFirst{70, 1}, kSecond{80, 1};

class MpsLinkTest : public ::testing::Test {
 protected:
  // Steps as the agent does: when MpsLink asks for it, but at least 1 ms apart.
  void run(Nanos length) {
    for (const Time end = now_ + length; now_ < end;)
      now_ = std::min(std::max(link_.step(now_), now_ + 1ms), end);
  }
  void run_with_clients(std::set<ProcessId> clients) {
    host_.clients = std::move(clients);
    link_.want("", true);
    run(3s);
  }

  Time now_{1000s};
  std::unique_ptr<FakeMpsHost> owned_ = std::make_unique<FakeMpsHost>();
  FakeMpsHost& host_ = *owned_;
  MpsLink link_{std::move(owned_), [](const ProcessId& process) {
                  return MpsClient{process, process == kFirst ? "a" : "b", "spin"};
                }};
};

TEST_F(MpsLinkTest, StartsItAndKnowsItsClients) {
  run_with_clients({kFirst, kSecond});
  EXPECT_EQ(host_.starts, std::vector<std::string>{" all"});
  EXPECT_EQ(link_.status().state, MpsState::kRunning);
  EXPECT_EQ(link_.status().pid, kDaemon.pid);
  EXPECT_EQ(link_.status().clients, 2u);
  EXPECT_TRUE(link_.is_client(kFirst));
  EXPECT_EQ(link_.pipe_for({90, 1}), host_.pipe);
}

TEST_F(MpsLinkTest, FilesOfClientsAreKeptWhoeverNamesThem) {
  run_with_clients({kFirst});
  EXPECT_EQ(host_.copied, std::set<ProcessId>{kFirst});
  link_.note_context(now_, kSecond, {});
  EXPECT_EQ(host_.copied, (std::set<ProcessId>{kFirst, kSecond}));
}

// PyTorch is loaded for seconds before it connects to the server.
TEST_F(MpsLinkTest, WhoConnectsLateIsKnownAsSoonAsItHasAContext) {
  run_with_clients({});
  EXPECT_NE(link_.pipe_for(kFirst), "");
  run(3s);
  host_.clients = {kFirst};
  link_.note_context(now_, kFirst, {});
  run(2 * MpsPlan::kLook);
  EXPECT_TRUE(link_.is_client(kFirst));
}

TEST_F(MpsLinkTest, ClientsMayStandOnOneLine) {
  host_.separator = " ";
  run_with_clients({kFirst, kSecond});
  EXPECT_EQ(link_.status().clients, 2u);
}

TEST_F(MpsLinkTest, ANewProgramIsKnownSoonAfterItWasToldOfTheServer) {
  run_with_clients({});
  EXPECT_NE(link_.pipe_for(kFirst), "");
  host_.clients = {kFirst};
  run(1s);
  EXPECT_TRUE(link_.is_client(kFirst));
}

TEST_F(MpsLinkTest, WithoutADaemonForTheRightGpusNoProgramIsTold) {
  EXPECT_EQ(link_.pipe_for(kFirst), "");
  host_.does_start = false;
  link_.want("", true);
  run(1s);
  EXPECT_EQ(link_.pipe_for(kFirst), "");
  host_.running = MpsDaemon{kDaemon, "GPU-x"};
  host_.clients = {kSecond};
  run(1s);
  EXPECT_EQ(link_.status().state, MpsState::kOther);
  EXPECT_EQ(link_.pipe_for(kFirst), "");
}

TEST_F(MpsLinkTest, AProgramThatWouldSeeOtherGpusIsNotTold) {
  link_.want("GPU-11111111-a", true);
  run(1s);
  EXPECT_EQ(link_.pipe_for(kFirst), "");
  host_.visible_devices = "GPU-11111111-a";
  EXPECT_EQ(link_.pipe_for(kFirst), host_.pipe);
}

TEST_F(MpsLinkTest, ADaemonThatDiesIsStartedAgain) {
  run_with_clients({});
  run(20s);
  host_.running.reset();
  run(1s);
  EXPECT_EQ(host_.starts.size(), 2u);
  EXPECT_EQ(link_.status().state, MpsState::kRunning);
}

TEST_F(MpsLinkTest, ADaemonThatIsNotStartedSaysWhy) {
  host_.refusal = Error{std::make_error_code(std::errc::io_error), "start MPS", "no such option"};
  link_.want("", true);
  run(1s);
  EXPECT_NE(link_.status().error.find("no such option"), std::string::npos);
  EXPECT_EQ(link_.status().state, MpsState::kStarting);
  host_.refusal.reset();
  run(10s);
  EXPECT_EQ(link_.status().state, MpsState::kRunning);
  EXPECT_EQ(link_.status().error, "");
}

TEST_F(MpsLinkTest, ADaemonThatDoesNotAnswerIsReportedAndLeftAlone) {
  run_with_clients({kFirst});
  host_.is_silent = true;
  run(20s);
  EXPECT_NE(link_.status().error, "");
  EXPECT_EQ(link_.status().state, MpsState::kRunning);
  EXPECT_EQ(host_.starts.size(), 1u);
  host_.is_silent = false;
  run(2 * MpsPlan::kAskBusy);
  EXPECT_EQ(link_.status().error, "");
}

TEST_F(MpsLinkTest, NamesTheProcessesThatEndedWithAFault) {
  run_with_clients({kFirst, kSecond});
  host_.has_fault = true;
  run(MpsPlan::kAskBusy + 1s);
  EXPECT_EQ(link_.status().faults, 1u);
  host_.ended = {kFirst, kSecond};
  host_.clients.clear();
  run(3s);
  EXPECT_EQ(link_.status().last_fault, "tenant a: spin (pid 70), tenant b: spin (pid 80)");
  EXPECT_EQ(link_.status().clients, 0u);
}

// The server would refuse them; without it they take turns.
TEST_F(MpsLinkTest, WhileItTurnsClientsAwayNoProgramIsTold) {
  run_with_clients({kFirst});
  host_.has_server = host_.has_fault = true;
  run(MpsPlan::kAskBusy + 1s);
  EXPECT_EQ(link_.pipe_for(kSecond), "");
  host_.has_fault = false;
  host_.ended = {kFirst};
  host_.clients.clear();
  run(1s);
  EXPECT_EQ(link_.pipe_for(kSecond), host_.pipe);
}

TEST_F(MpsLinkTest, ReplacesItWhenTheLastClientHasGone) {
  run_with_clients({kFirst});
  link_.want("GPU-x", true);
  run(10s);
  EXPECT_EQ(host_.starts.size(), 1u);
  host_.ended = {kFirst};
  host_.clients.clear();
  run(2 * MpsPlan::kAskBusy + 1s);
  EXPECT_EQ(host_.starts.size(), 2u);
  EXPECT_EQ(host_.starts.back(), "GPU-x all");
}

TEST_F(MpsLinkTest, LeavesOneWithClientsAndEndsOneWithout) {
  run_with_clients({kFirst});
  link_.leave();
  EXPECT_TRUE(host_.running);
  host_.ended = {kFirst};
  host_.clients.clear();
  run(3s);
  link_.leave();
  EXPECT_FALSE(host_.running);
}

TEST_F(MpsLinkTest, AsksNothingWhereNothingIsWanted) {
  run(10s);
  EXPECT_EQ(link_.step(now_), Time::max());
  EXPECT_EQ(host_.asked, "");
  EXPECT_TRUE(host_.starts.empty());
}

}  // namespace
}  // namespace gpushare
