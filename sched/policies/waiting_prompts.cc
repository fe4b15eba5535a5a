// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/waiting_prompts.h"

#include <algorithm>

#include "sched/policy/shim_views.h"

namespace gpushare {

void WaitingPrompts::look(Time now, std::span<const ProcessView* const> processes) {
  forget_others(processes_, processes);
  oldest_.reset();
  count_ = 0;
  const auto note = [&](Time since) { oldest_ = oldest_ ? std::min(*oldest_, since) : since; };
  for (const ProcessView* const process : processes) {
    if (!process->iterations) continue;
    const IterationsView& said = *process->iterations;
    const auto [at, is_new] = processes_.try_emplace(
        process->process, Known{.arrivals = said.arrivals, .ended = said.ended, .waiting = {}});
    follow(now, said, at->second);
    const bool is_at_work =
        said.begun > said.ended || said.waits_since || now - process->last_launch < kAbandoned;
    if (!is_at_work && !at->second.waiting.empty() &&
        now - at->second.waiting.back().at >= kAbandoned) {
      at->second.waiting.clear();
      at->second.waiting_count = 0;
    }
    count_ = std::max(count_, at->second.waiting_count);
    if (!at->second.waiting.empty()) note(at->second.waiting.front().at);
    if (said.waits_since) note(std::min(*said.waits_since, now));
  }
}

// Of what came before the first look nothing is known.
void WaitingPrompts::follow(Time now, const IterationsView& said, Known& known) {
  if (said.arrivals < known.arrivals || said.ended < known.ended) {
    known = {.arrivals = said.arrivals, .ended = said.ended, .waiting = {}};
    return;
  }
  if (said.arrivals > known.arrivals) {
    const uint64_t came = said.arrivals - known.arrivals;
    known.waiting_count += came;
    if (known.waiting.size() < kMostInstants)
      known.waiting.push_back({.at = now, .count = came});
    else
      known.waiting.back().count += came;
  }
  uint64_t answered = said.ended - known.ended;
  while (answered > 0 && !known.waiting.empty()) {
    Instant& first = known.waiting.front();
    const uint64_t gone = std::min(answered, first.count);
    first.count -= gone;
    answered -= gone;
    known.waiting_count -= gone;
    if (first.count == 0) known.waiting.pop_front();
  }
  known.arrivals = said.arrivals;
  known.ended = said.ended;
}

}  // namespace gpushare
