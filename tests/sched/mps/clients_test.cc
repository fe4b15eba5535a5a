// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/clients.h"

#include <gtest/gtest.h>

#include <set>

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Cause = MpsIncident::Cause;

constexpr ProcessId kServer{100, 1}, kA{1, 1}, kB{2, 1}, kAlsoA{3, 1};

class MpsClientsTest : public ::testing::Test {
 protected:
  void update(bool has_fault, std::vector<ProcessId> clients) {
    clients_.update(kServer, has_fault, is_whole_, clients, [](const ProcessId& process) {
      return MpsClient{process, process.pid == kB.pid ? "b" : "a", "spin"};
    });
  }
  std::vector<MpsIncident> step(Nanos passed = 100ms) {
    now_ += passed;
    return clients_.step(now_, [&](const ProcessId& process) { return ended_.contains(process); });
  }
  static std::set<pid_t> pids(const std::vector<MpsClient>& clients) {
    std::set<pid_t> all;
    for (const MpsClient& client : clients) all.insert(client.process.pid);
    return all;
  }

  Time now_{1000s};
  MpsClients clients_;
  bool is_whole_ = true;
  std::set<ProcessId> ended_;
};

TEST_F(MpsClientsTest, ClientsThatComeAndGoAreNoIncident) {
  update(false, {kA, kB});
  EXPECT_EQ(clients_.count(), 2u);
  ended_ = {kA};
  EXPECT_TRUE(step().empty());
  EXPECT_TRUE(clients_.take_news());
  EXPECT_FALSE(clients_.take_news());
  EXPECT_EQ(clients_.count(), 1u);
  EXPECT_FALSE(clients_.contains(kA));
  EXPECT_TRUE(clients_.contains(kB));
  ended_ = {kA, kB};
  EXPECT_TRUE(step(5s).empty());
}

// It has ended its context, or has become another program by exec(), which is no client.
TEST_F(MpsClientsTest, WhomItsServerDoesNotNameAnyMoreIsNoClient) {
  update(false, {kA, kB});
  update(false, {kA});
  EXPECT_TRUE(clients_.contains(kB)) << "one answer may be late";
  update(false, {kA, kB});
  is_whole_ = false;
  for (int i = 0; i < 5; ++i) update(false, {});
  is_whole_ = true;
  EXPECT_TRUE(clients_.contains(kB)) << "an answer that says nothing of it";
  update(false, {kA});
  EXPECT_TRUE(clients_.contains(kB));
  update(false, {kA});
  EXPECT_FALSE(clients_.contains(kB));
  EXPECT_EQ(clients_.count(), 1u);
  ended_ = {kB};
  EXPECT_TRUE(step().empty());
  update(false, {kA, kB});
  EXPECT_EQ(clients_.count(), 2u);
}

TEST_F(MpsClientsTest, AFaultIsToldWhenItIsSeenAndWhenAllHaveEnded) {
  update(false, {kA, kB});
  step();
  ended_ = {kB};  // its fault it was, and it ended before the server was asked
  EXPECT_TRUE(step().empty());
  update(true, {kA});
  const auto begun = step();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].cause, Cause::kFault);
  EXPECT_FALSE(begun[0].is_over);
  EXPECT_EQ(pids(begun[0].ended), (std::set<pid_t>{kB.pid}));
  EXPECT_EQ(pids(begun[0].alive), (std::set<pid_t>{kA.pid}));
  EXPECT_TRUE(step().empty());
  ended_ = {kA, kB};
  const auto over = step();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].is_over);
  EXPECT_EQ(pids(over[0].ended), (std::set<pid_t>{kA.pid, kB.pid}));
  update(true, {});
  EXPECT_TRUE(step().empty()) << "the same fault";
  update(false, {kAlsoA});
  update(true, {kAlsoA});
  EXPECT_EQ(step().size(), 1u) << "another one";
}

TEST_F(MpsClientsTest, AClientThatDoesNotEndIsNamedInTheEnd) {
  update(true, {kA, kB});
  EXPECT_EQ(step().size(), 1u);
  ended_ = {kB};
  step();
  const auto over = step(MpsClients::kSettled);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(pids(over[0].ended), (std::set<pid_t>{kB.pid}));
  EXPECT_EQ(pids(over[0].alive), (std::set<pid_t>{kA.pid}));
}

TEST_F(MpsClientsTest, AServerThatEndsTakesItsClientsAlong) {
  update(false, {kA, kB});
  ended_ = {kServer};
  const auto begun = step();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].cause, Cause::kServerEnded);
  ended_ = {kServer, kA, kB};
  ASSERT_EQ(step().size(), 1u);
  EXPECT_EQ(clients_.count(), 0u);
  EXPECT_TRUE(step().empty());
}

TEST_F(MpsClientsTest, AServerThatEndsWithoutClientsIsNoIncident) {
  update(false, {kA});
  ended_ = {kA};
  step();
  ended_ = {kA, kServer};
  EXPECT_TRUE(step().empty());
}

TEST_F(MpsClientsTest, ClientsOfTwoTenantsThatEndAtOnceAreSuspicious) {
  update(false, {kA, kB});
  ended_ = {kA};
  EXPECT_TRUE(step().empty());
  ended_ = {kA, kB};
  const auto begun = step();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].cause, Cause::kTogether);
  const auto over = step(MpsClients::kTogether);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(pids(over[0].ended), (std::set<pid_t>{kA.pid, kB.pid}));
}

TEST_F(MpsClientsTest, ClientsThatEndedInAStandstillDidNotEndTogether) {
  update(false, {kA, kB});
  EXPECT_TRUE(step().empty());
  ended_ = {kA, kB};
  EXPECT_TRUE(step(10s).empty());
  EXPECT_TRUE(step().empty());
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(MpsClientsTest, ClientsOfOneTenantMayEndTogether) {
  update(false, {kA, kAlsoA});
  ended_ = {kA, kAlsoA};
  EXPECT_TRUE(step().empty());
}

TEST(MpsNames, SayTenantCommandAndPid) {
  const std::vector<MpsClient> clients{{kA, "a", "spin"}, {kB, "b", "python3"}};
  EXPECT_EQ(names_of(clients), "tenant a: spin (pid 1), tenant b: python3 (pid 2)");
}

}  // namespace
}  // namespace gpushare
