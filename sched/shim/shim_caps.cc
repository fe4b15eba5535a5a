// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_caps.h"

#include <algorithm>

#include "shmctl/plane/layout.h"

namespace gpushare {

// A launch that is counted while the gate is closed passes when it opens: who waits there is at
// work from then on.
void ShimCaps::watch(Time now, std::span<const Client> clients) {
  std::set<ProcessId> there;
  for (const Client& client : clients) there.insert(client.process);
  std::erase_if(known_, [&](const auto& known) { return !there.contains(known.first); });
  for (const Client& client : clients) {
    const auto [at, is_new] = known_.try_emplace(client.process);
    Known& known = at->second;
    const bool was_busy = known.busy_until > last_;
    const bool has_launched = !is_new && client.launches != known.launches;
    if (has_launched || (was_busy && is_shut(client.process))) {
      known.busy_from = was_busy ? last_ : std::max(last_, now - kLinger);
      known.busy_until = now + kLinger;
    } else {
      known.busy_from = last_;
    }
    known.launches = client.launches;
  }
}

Time ShimCaps::step(Time now, std::span<const Client> clients, const FindBudget& find) {
  struct Span {
    Time from, until;
  };
  std::map<Key, Span> busy;  // of the time since the last step
  std::map<Key, Budget> budgets;
  watch(now, clients);
  for (const Client& client : clients) {
    for (const uint32_t gpu : client.gpus) {
      const auto budget = find(client.tenant, gpu);
      if (!budget) continue;
      budgets.emplace(Key{client.tenant, gpu}, *budget);
      const Known& known = known_[client.process];
      const Span own{known.busy_from, std::min(known.busy_until, now)};
      if (is_shut(client.process) || own.until <= own.from) continue;
      Span& all = busy.try_emplace({client.tenant, gpu}, own).first->second;
      all = {std::min(all.from, own.from), std::max(all.until, own.until)};
    }
  }
  bool is_calm = true;
  std::set<Key> dry;
  for (auto& [key, budget] : budgets) {
    budget.cap.tokens = budget.bucket->refill(now);
    if (const auto at = busy.find(key); at != busy.end()) {
      budget.bucket->charge(at->second.until - at->second.from);
      budget.cap.tokens = budget.bucket->tokens();
      is_calm = false;
    }
    CapGate& gate = gates_.try_emplace(key.second, kMaxTenants).first->second;
    if (gate.update(key.first, budget.cap)) dry.insert(key);
  }
  shut_.clear();
  for (const Client& client : clients)
    if (std::ranges::any_of(client.gpus,
                            [&](uint32_t gpu) { return dry.contains({client.tenant, gpu}); }))
      shut_.insert(client.process);
  last_ = now;
  return now + (is_calm && shut_.empty() ? kCalmLook : kBusyLook);
}

}  // namespace gpushare
