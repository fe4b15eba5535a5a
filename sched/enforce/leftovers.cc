// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/leftovers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shmctl/base/log.h"

namespace gpushare {

Leftovers::Leftovers(Ledger& ledger, const Clock& clock,
                     std::function<bool(const LedgerKey&)> is_ours)
    : ledger_(ledger), clock_(clock), is_ours_(std::move(is_ours)) {
  for (const LedgerKey& key : ledger_.groups()) all_.insert(key);
}

void Leftovers::add(const LedgerKey& key) {
  all_.insert(key);
  undoing_.erase(key.gpu);  // the new one is tried soon
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
    return any_of(group.ref, holder.gpu, [&](const LedgerKey& key) {
      return begun_.contains(key) || (ledger_.freezes(key) > 0 && !is_ours_(key));
    });
  });
}

std::map<uint32_t, std::set<LedgerKey>> Leftovers::begin_due(
    bool at_once, const std::function<bool(uint32_t gpu)>& may_ask) {
  std::map<uint32_t, std::set<LedgerKey>> due;
  for (const LedgerKey& key : all_)
    if (!begun_.contains(key) && (key.is_process() || may_ask(key.gpu)) &&
        (at_once || undoing_[key.gpu].may_try(clock_)) && !is_ours_(key))
      due[key.gpu].insert(key);
  for (const auto& [gpu, keys] : due) begun_.insert(keys.begin(), keys.end());
  return due;
}

void Leftovers::end(uint32_t gpu, const std::set<LedgerKey>& tried, const RecoveryReport& report) {
  const std::vector<LedgerKey> listed = ledger_.groups();
  for (const LedgerKey& key : tried) end(key, !std::ranges::binary_search(listed, key));
  Backoff& undoing = undoing_[gpu];
  if (report.errors.empty()) {
    undoing.succeeded();
  } else if (undoing.failed(clock_.now(), report.errors.front())) {
    for (const std::string& error : report.errors) log_error("not undone yet: {}", error);
  }
}

}  // namespace gpushare
