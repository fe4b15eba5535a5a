// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_health.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tools/support/temp_dir.h"
#include "tools/agent/agent_service.h"

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

EndingRecord ended(EndingKind kind, uint32_t code = 0) {
  return {.agent_pid = 9,
          .kind = kind,
          .code = code,
          .reserved = 0,
          .ended_ns = static_cast<uint64_t>((kNow - seconds(1)).time_since_epoch().count())};
}

TEST(AgentHealth, SaysWhenAndHowItEndedAndHowItIsStarted) {
  const auto text = [](const AgentRecord& agent, const EndingRecord& ending) {
    return health_text(agent, judge_agent(agent, kNow, false, ending), kNow, ending);
  };
  const std::string start = " 1 s ago; start it: " + how_to_start();
  EXPECT_EQ(text({}, ended(EndingKind::kStopped)), "stopped cleanly" + start);
  EXPECT_EQ(text(published(seconds(1)), ended(EndingKind::kSignalled, 9)),
            "killed (SIGKILL)" + start)
      << "although its record is fresh";
  EXPECT_EQ(text(published(seconds(1)), ended(EndingKind::kSignalled, 11)),
            "crashed (SIGSEGV)" + start);
  EXPECT_EQ(text({}, ended(EndingKind::kExited, 2)),
            "failed (exit code 2; see journalctl -u gpushared)" + start);
  EXPECT_EQ(text(published(seconds(12)), {}),
            "gone; last seen 12 s ago; start it: " + how_to_start());
}

TEST(AgentHealth, TheEndOfTheAgentBeforeIsNotThatOfThisOne) {
  AgentRecord agent = published(seconds(0));
  EXPECT_TRUE(judge_agent(agent, kNow, true, ended(EndingKind::kStopped)).is_live())
      << "it has written since, though it has the same pid";
  agent.agent_pid = 10;
  EXPECT_TRUE(judge_agent(agent, kNow, true, ended(EndingKind::kSignalled, 9)).is_live());
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

TEST(AgentHealth, WithoutAGpuItNamesNoPolicy) {
  const AgentRecord agent = published(seconds(1));
  const std::string text = health_text(agent, judge_agent(agent, kNow, true), kNow);
  EXPECT_NE(text.find("running, pid 9, tick 2.0ms"), std::string::npos) << text;
}

TEST(AgentService, IsOfSystemdWhereThatRunsTheMachine) {
  const TempDir machine;
  EXPECT_EQ(how_to_start(machine.path()).find("systemctl"), std::string::npos);
  EXPECT_EQ(how_to_restart(machine.path()).find("systemctl"), std::string::npos);
  machine.write("run/systemd/system/x", "");
  EXPECT_EQ(how_to_start(machine.path()).find("systemctl"), std::string::npos) << "without a unit";
  EXPECT_EQ(how_to_restart(machine.path()).find("systemctl"), std::string::npos);
  machine.write("lib/systemd/system/gpushared.service", "");
  EXPECT_EQ(how_to_start(machine.path()), "systemctl start gpushared");
  EXPECT_EQ(how_to_restart(machine.path()), "systemctl restart gpushared");
}

TEST(AgentHealth, KnowsLivingProcesses) {
  EXPECT_TRUE(is_process_there(static_cast<uint32_t>(::getpid())));
  EXPECT_FALSE(is_process_there(0));
  EXPECT_FALSE(is_process_there(UINT32_MAX));
}

}  // namespace
}  // namespace gpushare
