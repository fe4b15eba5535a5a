// SPDX-License-Identifier: Apache-2.0
#include "sched/step/charging.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "sched/account/lone_context.h"

namespace gpushare {
namespace {

// After its end a sample has told what a program did alone, or none will.
constexpr Nanos kToldBy = std::chrono::milliseconds(1500);

}  // namespace

void Charging::hear_the_young(Time now) {
  if (outside_.shims == nullptr) return;
  for (uint32_t gpu = 0; gpu < state_.members_on.size(); ++gpu) {
    for (const auto* entry : state_.members_on[gpu]) {
      const auto& [key, member] = *entry;
      const pid_t pid = key.first.pid;
      if (now - member.came >= LoneContext::kYoung || !state_.accounting[gpu].is_young(pid, now))
        continue;
      const std::optional<SlotReading> said = outside_.shims->look(key.first);
      if (said && said->shows_work)
        state_.accounting[gpu].hear(pid, {.launches = said->launches, .waits = said->waits > 0},
                                    now);
    }
  }
}

void Charging::charge(const ProcessId& process, uint32_t tenant, uint32_t gpu,
                      const Accounting::Charge& charge, std::optional<Time> before) {
  const auto known = presumed_.find({process, gpu});
  if (known == presumed_.end() || known->second.tenant == outside_.tenants.at(tenant)->name)
    return charge_one(process, tenant, gpu, charge);
  // What it did before it came to this tenant is the other one's, as it is known by now.
  const std::optional<uint32_t> other = state_.tenants.find(known->second.tenant);
  if (other) charge_one(process, *other, gpu, charge);
  const Nanos presumed = state_.accounting[gpu].conclude(process.pid, before);
  presumed_.erase({process, gpu});
  if (!other) return;
  state_.tenant_use[*other].presumed[gpu] -= presumed;
  state_.tenant_use[*other].used[gpu] += presumed;
}

void Charging::charge_one(const ProcessId& process, uint32_t tenant, uint32_t gpu,
                          const Accounting::Charge& charge) {
  TenantUse& use = state_.tenant_use[tenant];
  use.used[gpu] += charge.used;
  use.presumed[gpu] += charge.presumed;
  if (charge.presumed != Nanos{}) {
    Presumed& one = presumed_[{process, gpu}];
    one.tenant = outside_.tenants.at(tenant)->name;
    one.amount += charge.presumed;
    if (one.amount == Nanos{}) presumed_.erase({process, gpu});
  }
  if (is_serving(process)) {
    if (outside_.shims != nullptr) outside_.shims->add_server_use(gpu, charge.net());
  } else if (!is_gated(process)) {
    outside_.tenants.for_line(tenant, [&](uint32_t slot, const Tenant& one) {
      const std::optional<Cap> cap = one.cap_on(gpu);
      if (!cap) return;
      Owed& owed = owed_[{gpu, slot}];
      owed.known += charge.net() + charge.excused;
      owed.doubt.join(charge.doubt);
    });
  }
}

void Charging::settle(uint32_t gpu, bool takes_turns, Time now) {
  for (const uint32_t slot : outside_.tenants.slots()) {
    if (!outside_.tenants.at(slot)->cap_on(gpu)) continue;
    TokenBucket& bucket = outside_.region.tenants[slot].buckets[gpu];
    const auto owed = owed_.extract({gpu, slot});
    const Nanos used = owed ? owed.mapped().known + owed.mapped().doubt.bounded() : Nanos{};
    bucket.refill(takes_turns ? now - std::max(used, Nanos{}) : now);
    bucket.charge(used);
    bucket.refill(now);
  }
}

void Charging::forget_caps() {
  std::erase_if(owed_, [&](const auto& owed) {
    const Tenant* const tenant = outside_.tenants.at(owed.first.second);
    return tenant == nullptr || !tenant->cap_on(owed.first.first);
  });
}

void Charging::charge_departed(TurnTaking& turns, const LogReader& logs, Time now) {
  of_departed_.clear();
  std::erase_if(state_.departed, [&](Departed& departed) {
    Accounting& accounting = state_.accounting[departed.gpu];
    const pid_t pid = departed.process.pid;
    const std::optional<Time> before = departed.succeeded;
    const std::optional<uint32_t> tenant = state_.tenants.find(departed.tenant);
    const Time until = before.value_or(departed.until);
    const bool is_read = now >= until && logs.is_read_until(departed.gpu, until);
    const bool is_told = accounting.is_told(pid, before) || now - until >= kToldBy;
    const bool is_over = (!departed.tenant.empty() && !tenant) || (is_read && is_told);
    departed.owed.add(is_over ? accounting.close(pid, before)
                              : accounting.take_charge(pid, before));
    turns.add_late(departed);
    if (tenant) {
      charge(departed.process, *tenant, departed.gpu, departed.owed, before);
      of_departed_[{*tenant, departed.gpu}] += departed.owed.net();
    }
    departed.owed = {};
    if (is_over) presumed_.erase({departed.process, departed.gpu});
    return is_over;
  });
}

}  // namespace gpushare
