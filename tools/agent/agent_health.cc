// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_health.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/agent/agent_service.h"
#include "tools/base/format.h"

namespace gpushare {
namespace {

// The instants of the record may be anything, because a region's bytes are not trusted.
Nanos since(uint64_t instant_ns, Time now) {
  const auto now_ns = static_cast<uint64_t>(std::max<int64_t>(0, now.time_since_epoch().count()));
  return Nanos(static_cast<int64_t>(now_ns - std::min(now_ns, instant_ns)));
}

// Whether the record is the last one of the agent that ended. An agent that stops clears its own.
bool is_of(const EndingRecord& ending, const AgentRecord& agent) {
  if (ending.kind == EndingKind::kNone) return false;
  if (agent.agent_pid == 0) return true;
  return ending.agent_pid == agent.agent_pid && ending.ended_ns >= agent.published_ns;
}

std::string signal_text(uint32_t signal) {
  const char* name = ::sigabbrev_np(static_cast<int>(signal));
  const std::string text =
      name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
  const bool is_asked_for = signal == SIGKILL || signal == SIGTERM || signal == SIGINT;
  return fmt::format("{} ({})", is_asked_for ? "killed" : "crashed", text);
}

std::string ending_text(const EndingRecord& ending) {
  switch (ending.kind) {
    case EndingKind::kStopped:
      return "stopped cleanly";
    case EndingKind::kHandedOver:
      return "stopped to make way for the next one";
    case EndingKind::kExited:
      return fmt::format("failed (exit code {}; see journalctl -u gpushared)", ending.code);
    case EndingKind::kSignalled:
      return signal_text(ending.code);
    case EndingKind::kNone:
      break;
  }
  return "ended";
}

}  // namespace

AgentHealth judge_agent(const AgentRecord& agent, Time now, bool is_process_there,
                        const EndingRecord& ending) {
  if (is_of(ending, agent)) return {AgentHealth::State::kGone, since(ending.ended_ns, now)};
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

std::string health_text(const AgentRecord& agent, const AgentHealth& health, Time now,
                        const EndingRecord& ending) {
  const std::string start = "start it: " + how_to_start();
  switch (health.state) {
    case AgentHealth::State::kNever:
      return fmt::format("has not run yet; {}", start);
    case AgentHealth::State::kGone:
      if (is_of(ending, agent))
        return fmt::format("{} {} ago; {}", ending_text(ending), duration_text(health.age), start);
      return fmt::format("gone; last seen {} ago; {}", duration_text(health.age), start);
    case AgentHealth::State::kStale:
      return fmt::format("stuck (pid {}); last seen {} ago", agent.agent_pid,
                         duration_text(health.age));
    case AgentHealth::State::kLive:
      break;
  }
  // Without a GPU there is no policy.
  const std::string policy = printable(agent.policy);
  std::string text = fmt::format(
      "running{}, pid {}, {}tick {}, up {}", agent.is_simulated != 0 ? ", simulated GPU" : "",
      agent.agent_pid, policy.empty() ? "" : "policy " + policy + ", ", micros_text(agent.tick_us),
      duration_text(since(agent.started_ns, now)));
  if (agent.restarts > 0) text += fmt::format(", restarted {}x", agent.restarts);
  return text;
}

}  // namespace gpushare
