// SPDX-License-Identifier: Apache-2.0
#include "sched/stuck.h"

#include "shmctl/ledger.h"

namespace gpushare {

uint32_t held_by_stuck(const Region& region, pid_t agent, Time now) {
  const auto record = read_record(region.agent);
  if (!record || record->agent_pid != static_cast<uint32_t>(agent)) return 0;
  const Time published(Nanos(static_cast<int64_t>(record->published_ns)));
  if (now - published < kStuckAfter) return 0;
  uint32_t held = 0;
  for_each_entry(region, [&](uint32_t, const LedgerRecord& entry) {
    if (entry.freezes > 0 && entry.part == 0) ++held;
  });
  return held;
}

}  // namespace gpushare
