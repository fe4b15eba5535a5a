// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/leftovers.h"

#include <algorithm>

#include "sched/enforce/recovery.h"
#include "shmctl/base/log.h"

namespace gpushare {

Leftovers::Leftovers(Gpu& gpu, Ledger& ledger, const Clock& clock)
    : gpu_(gpu), ledger_(ledger), clock_(clock) {
  for (const LedgerKey& key : ledger_.groups()) all_.insert(key);
}

void Leftovers::add(const LedgerKey& key) {
  all_.insert(key);
  undoing_ = {};  // the new one is tried soon
}

template <class Fn>
bool Leftovers::any_of(const GroupRef& group, uint32_t gpu, const Fn& fn) const {
  return std::ranges::any_of(all_, [&](const LedgerKey& key) {
    return key.gpu == gpu && key.client == group.client && key.group == group.group && fn(key);
  });
}

bool Leftovers::concerns(const GroupRef& group, uint32_t gpu) const {
  return any_of(group, gpu, [](const LedgerKey&) { return true; });
}

bool Leftovers::has_freeze(const Holder& holder) const {
  return std::ranges::any_of(holder.groups, [&](const ComputeGroup& group) {
    return any_of(group.ref, holder.gpu,
                  [&](const LedgerKey& key) { return ledger_.freezes(key) > 0; });
  });
}

std::vector<ProcessId> Leftovers::undo(const ProcReader& processes, bool at_once) {
  const Time now = clock_.now();
  if (all_.empty() || (!at_once && !undoing_.may_try(now))) return {};
  RecoveryReport report = recover(gpu_, ledger_, processes, all_);
  const std::vector<LedgerKey> listed = ledger_.groups();
  std::erase_if(all_,
                [&](const LedgerKey& key) { return !std::ranges::binary_search(listed, key); });
  if (report.errors.empty()) {
    undoing_.succeeded();
  } else if (undoing_.failed(now, report.errors.front())) {
    for (const std::string& error : report.errors) log_error("not undone yet: {}", error);
  }
  return std::move(report.thawed);
}

}  // namespace gpushare
