// SPDX-License-Identifier: Apache-2.0
// SloMeter: measures the iterations of one tenant on one GPU over a span in which it had the same
// SM groups all the time, shared with as many others. When that changes, when a process comes, and
// when one begins to announce what was recognised before, measuring begins anew with the first
// iteration that ended after that: the one in between had a bit of both. Pure; the agent's one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sched/slo/arrival_rate.h"
#include "sched/slo/round.h"

namespace gpushare {

class SloMeter {
 public:
  // However few iterations there were by then, they are counted, so that nobody waits for ever for
  // one that takes minutes.
  static constexpr Nanos kPatience = std::chrono::minutes(1);

  // At every step of the agent. `processes`: those of the tenant with the shim. groups == 0:
  // nothing is measured.
  void look(Time now, uint32_t groups, uint32_t sharers,
            std::span<const ProcessView* const> processes);

  // Requests a second of the queue that a request finds, which is that of its process; < 0: not
  // announced, or not known yet. Counted wherever they ran.
  double arrivals(Time now);
  // Requests of the longest queue that are not answered, beyond the least that there were in the
  // last 5 to 10 seconds: what was never begun, or begun unannounced, is no queue.
  uint64_t backlog() const;

  // What was measured since measuring began, if it is at least `least` iterations; measuring then
  // begins anew. Otherwise processes == 0, and what there is goes on to be counted.
  SloMeasure take(Time now, uint64_t least);

  uint32_t groups() const { return groups_; }  // that it is measured on
  // The shortest target that one of its programs asks for; 0: none does.
  Nanos asked() const;
  // When an iteration was last seen to end.
  Time last_end() const { return last_end_; }
  // Of the process with the most iterations; empty: unknown. Valid until the next look().
  std::string_view command_line() const { return command_line_; }

 private:
  struct Process {
    IterationsView first, last;  // where measuring began, and now
    Time since{};                // of `first`
    uint64_t waits_for = 0;      // an iteration beyond so many ended
    bool is_measured = false;
    std::optional<ArrivalRate> arrivals;
    int64_t open = 0;                         // arrivals that did not end
    int64_t least_now = 0, least_before = 0;  // of that, in spans of kSpan
    Time span_since{};
  };
  static constexpr Nanos kSpan = std::chrono::seconds(5);

  static void count_open(Time now, const IterationsView& reading, Process& process);

  uint32_t groups_ = 0, sharers_ = 1;
  std::map<ProcessId, Process> processes_;
  Time last_end_{};
  std::string_view command_line_;
};

}  // namespace gpushare
