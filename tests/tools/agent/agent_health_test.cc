// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_health.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace gpushare {
namespace {

using State = AgentHealth::State;
using std::chrono::seconds;

constexpr Time kNow{seconds(1000)};

AgentRecord published(seconds ago) {
  AgentRecord agent;
  agent.agent_pid = 9;
  agent.tick_us = 2000;
  agent.published_ns = static_cast<uint64_t>((kNow - ago).time_since_epoch().count());
  return agent;
}

TEST(AgentHealth, FreshIsLiveWhateverThePidSays) {
  EXPECT_EQ(judge_agent(published(seconds(1)), kNow, true).state, State::kLive);
  EXPECT_EQ(judge_agent(published(seconds(1)), kNow, false).state, State::kLive);
}

TEST(AgentHealth, OldIsStuckOrGone) {
  const AgentHealth stuck = judge_agent(published(seconds(12)), kNow, true);
  EXPECT_EQ(stuck.state, State::kStale);
  EXPECT_EQ(stuck.age, seconds(12));
  EXPECT_EQ(judge_agent(published(seconds(12)), kNow, false).state, State::kGone);
  EXPECT_EQ(health_text(published(seconds(12)), stuck, kNow), "stuck (pid 9); last seen 12 s ago");
}

TEST(AgentHealth, ASlowTickIsNotStuck) {
  AgentRecord agent = published(seconds(4));
  agent.tick_us = 1'000'000;
  EXPECT_EQ(judge_agent(agent, kNow, true).state, State::kLive);
}

TEST(AgentHealth, AnAgentThatSaidGoodbyeIsGone) {
  AgentRecord agent = published(seconds(1));
  agent.agent_pid = 0;
  EXPECT_EQ(judge_agent(agent, kNow, false).state, State::kGone);
  EXPECT_EQ(judge_agent(AgentRecord{}, kNow, false).state, State::kNever);
}

TEST(AgentHealth, InstantsInTheFutureAreNotTrusted) {
  AgentRecord agent = published(seconds(1));
  agent.published_ns = agent.started_ns = UINT64_MAX;
  const AgentHealth health = judge_agent(agent, kNow, true);
  EXPECT_EQ(health.age, seconds(0));
  EXPECT_NE(health_text(agent, health, kNow).find("up 0 ms"), std::string::npos);
}

TEST(AgentHealth, KnowsLivingProcesses) {
  EXPECT_TRUE(is_process_there(static_cast<uint32_t>(::getpid())));
  EXPECT_FALSE(is_process_there(0));
  EXPECT_FALSE(is_process_there(UINT32_MAX));
}

}  // namespace
}  // namespace gpushare
