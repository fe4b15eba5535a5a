// SPDX-License-Identifier: Apache-2.0
// WaitingPrompts: since when the oldest prompt of one tenant waits for the first token of its
// answer, as far as its programs tell: by the requests that they announce and answer in order of
// arrival, and by the iterations that are held. A program that has requests and does nothing for
// ten seconds has none any more: they were cancelled, or answered together. Pure; the agent's one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "sched/policy/policy.h"

namespace gpushare {

class WaitingPrompts {
 public:
  // At every step of the agent. `processes`: those of the tenant with the shim.
  void look(Time now, std::span<const ProcessView* const> processes);

  // When the oldest one came; nullopt: none waits.
  std::optional<Time> oldest() const { return oldest_; }
  // How many announced ones wait in the longest queue, which is that of one process.
  uint64_t count() const { return count_; }

 private:
  static constexpr std::size_t kMostInstants = 4096;  // later ones count as the last
  static constexpr Nanos kAbandoned = std::chrono::seconds(10);

  struct Instant {
    Time at{};
    uint64_t count = 0;  // prompts that came then
  };
  struct Known {
    uint64_t arrivals = 0, ended = 0;  // at the last look
    std::deque<Instant> waiting;       // in the order of arrival
    uint64_t waiting_count = 0;        // of all instants
  };

  static void follow(Time now, const IterationsView& said, Known& known);

  std::map<ProcessId, Known> processes_;
  std::optional<Time> oldest_;
  uint64_t count_ = 0;
};

}  // namespace gpushare
