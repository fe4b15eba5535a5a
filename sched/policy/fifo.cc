// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/fifo.h"

#include <tuple>

namespace gpushare {

Plan FifoPolicy::plan(const Snapshot& snapshot) {
  const ProcessView* first = nullptr;
  for (const ProcessView& process : snapshot.processes) {
    const bool keeps = process.process == holder_ && snapshot.now < worked_ + patience_;
    if (!process.can_plan() || !(process.wants_gpu || keeps)) continue;
    if (!first || std::tie(process.came, process.id) < std::tie(first->came, first->id))
      first = &process;
  }
  holder_ = first ? first->process : ProcessId{};
  if (first && first->wants_gpu) worked_ = snapshot.now;
  Plan plan;
  if (first && !first->wants_gpu) plan.next = worked_ + patience_;
  for (const ProcessView& process : snapshot.processes) {
    if (!process.can_plan()) continue;
    Decision& decision = plan.decisions.emplace_back(Decision{.process = process.id});
    if (&process == first) decision.target = 1;
    if (&process == first || !process.wants_gpu) continue;
    decision.freeze = FreezeReason::kTurn;
    decision.reason = "waits for process " + std::to_string(holder_.pid);
  }
  return plan;
}

}  // namespace gpushare
