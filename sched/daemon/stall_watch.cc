// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/stall_watch.h"

#include "shmctl/plane/ledger.h"

namespace gpushare {

uint32_t StallWatch::look(const Region& region, pid_t agent, Time now) {
  if (now < next_) return 0;
  next_ = now + kBetween;
  const auto record = read_record(region.agent);
  if (!record || record->agent_pid != static_cast<uint32_t>(agent)) return 0;
  const bool is_same = agent == agent_ && record->published_ns == published_ns_;
  agent_ = agent;
  published_ns_ = record->published_ns;
  seen_ = is_same ? seen_ + 1 : 1;
  if (seen_ < kLooks) return 0;
  uint32_t held = 0;
  for_each_entry(region, [&](uint32_t, const LedgerRecord& entry) {
    if (entry.freezes > 0 && entry.part == 0) ++held;
  });
  return held;
}

}  // namespace gpushare
