// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_health.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "tools/base/format.h"

namespace gpushare {
namespace {

// The instants of the record may be anything, because a region's bytes are not trusted.
Nanos since(uint64_t instant_ns, Time now) {
  const auto now_ns = static_cast<uint64_t>(std::max<int64_t>(0, now.time_since_epoch().count()));
  return Nanos(static_cast<int64_t>(now_ns - std::min(now_ns, instant_ns)));
}

}  // namespace

AgentHealth judge_agent(const AgentRecord& agent, Time now, bool is_process_there) {
  if (agent.published_ns == 0) return {};
  const Nanos age = since(agent.published_ns, now);
  const Nanos limit = std::max<Nanos>(std::chrono::seconds(2), 5 * Micros(agent.tick_us));
  using State = AgentHealth::State;
  const bool is_fresh = age <= limit && agent.agent_pid != 0;
  return {is_fresh ? State::kLive : is_process_there ? State::kStale : State::kGone, age};
}

bool is_process_there(uint32_t pid) {
  if (pid == 0 || pid > INT32_MAX) return false;
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
}

std::string health_text(const AgentRecord& agent, const AgentHealth& health, Time now) {
  switch (health.state) {
    case AgentHealth::State::kNever:
      return "has not run yet";
    case AgentHealth::State::kGone:
      return fmt::format("gone; last seen {} ago", duration_text(health.age));
    case AgentHealth::State::kStale:
      return fmt::format("stuck (pid {}); last seen {} ago", agent.agent_pid,
                         duration_text(health.age));
    case AgentHealth::State::kLive:
      break;
  }
  std::string text = fmt::format("running, pid {}, policy {}, tick {}, up {}", agent.agent_pid,
                                 printable(agent.policy), micros_text(agent.tick_us),
                                 duration_text(since(agent.started_ns, now)));
  if (agent.restarts > 0) text += fmt::format(", restarted {}x", agent.restarts);
  if (agent.is_simulated != 0) text += ", simulated GPU";
  return text;
}

}  // namespace gpushare
