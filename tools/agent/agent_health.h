// SPDX-License-Identifier: Apache-2.0
// Judges whether the agent that wrote the control plane is still there. Pure, but that a text says
// how it is started on this machine.
#pragma once

#include <string>

#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

struct AgentHealth {
  enum class State {
    kNever,  // no agent has written yet
    kLive,
    kStale,  // its process exists, but it has not written for a while: stuck or stopped
    kGone,   // its process does not exist, or it said that it ends
  };
  State state = State::kNever;
  Nanos age{};  // since it wrote last; 0 for kNever

  bool is_live() const { return state == State::kLive; }
};

// `is_process_there` says whether agent_pid exists. A record that was written in the last 2 s, or
// in the last 5 ticks if those are longer, is fresh whatever the pid says, because a reader in a
// container cannot see the agent's process.
// `ending`: of the last agent that ended.
AgentHealth judge_agent(const AgentRecord& agent, Time now, bool is_process_there,
                        const EndingRecord& ending = {});
bool is_process_there(uint32_t pid);

// "running, pid 123, policy fair, tick 2.0ms, up 3 min 5 s"; of one that is gone when and how it
// ended, and how it is started.
std::string health_text(const AgentRecord& agent, const AgentHealth& health, Time now,
                        const EndingRecord& ending = {});

}  // namespace gpushare
