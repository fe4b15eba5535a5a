// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_caps.h"

#include <algorithm>
#include <utility>

#include "shmctl/plane/layout.h"
#include "shmctl/shim/credit.h"

namespace gpushare {

namespace {

Nanos launch_of(const ShimCaps::OnGpu& on_gpu) {
  return std::clamp(on_gpu.launch, Nanos{}, ShimCaps::kLongestLaunch);
}

// How long it is at work after it was last seen to be.
Nanos linger_of(const ShimCaps::Client& client) {
  if (!client.on_gpu) return ShimCaps::kLinger;
  return ShimCaps::kLingerOnGpu + launch_of(*client.on_gpu);
}

// What runs between two waits: launches of kCreditSpacing and more have a wait each.
Nanos between_waits(const ShimCaps::OnGpu& on_gpu) {
  const Nanos launch = launch_of(on_gpu);
  if (launch == Nanos{}) return kCreditSpacing;
  return launch * ((kCreditSpacing + launch - Nanos{1}) / launch);
}

}  // namespace

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
    const Nanos linger = linger_of(client);
    const bool has_launched = !is_new && client.launches != known.launches;
    const bool gets_on =
        client.on_gpu && client.launches != 0 &&
        (client.on_gpu->waits || (!is_new && client.on_gpu->reached != known.reached));
    if (has_launched || gets_on || (was_busy && is_shut(client.process))) {
      // Of a standstill of the agent, or of the machine, nobody knows who worked in it.
      known.busy_from = std::max(last_, now - (was_busy ? kCalmLook + linger : linger));
      known.busy_until = now + linger;
    } else {
      known.busy_from = last_;
    }
    known.launches = client.launches;
    known.reached = client.on_gpu ? client.on_gpu->reached : 0;
  }
}

// Time in which any client was at work explains as much of its server's use. A standstill explains
// itself: who worked in it did not say so at the time.
void ShimCaps::compare(Time now, std::span<const Client> clients,
                       const std::map<Key, Budget>& budgets, std::span<const Nanos> server_use) {
  doubted_.clear();
  for (uint32_t gpu = 0; gpu < server_use.size(); ++gpu) {
    if (server_use[gpu] == Nanos{} && !windows_.contains(gpu)) continue;
    Window& window = windows_[gpu];
    Nanos explained = now - last_ > kStandstill ? now - last_ : Nanos{};
    std::set<Key> silent;
    std::set<ProcessId> silent_clients;
    for (const Client& client : clients) {
      if (std::ranges::find(client.gpus, gpu) == client.gpus.end()) continue;
      const Known& known = known_[client.process];
      const Time until = std::min(known.busy_until, now);
      if (until > known.busy_from) {
        window.spoke.insert(client.process);
        explained = std::max<Nanos>(explained, until - known.busy_from);
      }
      if (window.spoke.contains(client.process) || !budgets.contains({client.tenant, gpu}))
        continue;
      silent.insert({client.tenant, gpu});
      silent_clients.insert(client.process);
    }
    window.used += server_use[gpu];
    window.explained += explained;
    if (now >= window.end) {
      const bool is_lie = window.used > 4 * window.explained + kLate && !silent.empty();
      if (is_lie)
        for (const Key& key : silent)
          budgets.at(key).bucket->charge((window.used - window.explained) /
                                         static_cast<int64_t>(silent.size()));
      window = {.end = now + kWindow,
                .used = {},
                .explained = {},
                .spoke = {},
                .doubted = is_lie ? silent_clients : std::set<ProcessId>{}};
    }
    doubted_.insert(window.doubted.begin(), window.doubted.end());
  }
}

Time ShimCaps::step(Time now, std::span<const Client> clients, const FindBudget& find,
                    std::span<const Nanos> server_use) {
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
  compare(now, clients, budgets, server_use);
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
  const std::set<ProcessId> before = std::exchange(shut_, {});
  std::map<Key, Nanos> runs_on;
  for (const Client& client : clients) {
    for (const uint32_t gpu : client.gpus) {
      const Key key{client.tenant, gpu};
      if (!dry.contains(key)) continue;
      shut_.insert(client.process);
      if (client.on_gpu && known_[client.process].busy_until > now &&
          !before.contains(client.process))
        runs_on[key] = std::max(runs_on[key], between_waits(*client.on_gpu) / 2);
    }
  }
  for (const auto& [key, length] : runs_on) budgets.at(key).bucket->charge(length);
  last_ = now;
  return now + (is_calm && shut_.empty() && before.empty() ? kCalmLook : kBusyLook);
}

}  // namespace gpushare
