// SPDX-License-Identifier: Apache-2.0
#include "sched/step/charging.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "sched/account/lone_context.h"

namespace gpushare {

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
                      const Accounting::Charge& charge) {
  state_.tenant_use[tenant].used[gpu] += charge.used;
  if (is_serving(process)) {
    if (outside_.shims != nullptr) outside_.shims->add_server_use(gpu, charge.used);
  } else if (!is_gated(process)) {
    outside_.tenants.for_line(tenant, [&](uint32_t slot, const Tenant& one) {
      const std::optional<Cap> cap = one.cap_on(gpu);
      if (!cap) return;
      owed_[{gpu, slot}] += charge.used + charge.excused;
    });
  }
}

void Charging::settle(uint32_t gpu, bool takes_turns, Time now) {
  for (const uint32_t slot : outside_.tenants.slots()) {
    if (!outside_.tenants.at(slot)->cap_on(gpu)) continue;
    TokenBucket& bucket = outside_.region.tenants[slot].buckets[gpu];
    const auto owed = owed_.extract({gpu, slot});
    const Nanos used = owed ? owed.mapped() : Nanos{};
    bucket.refill(takes_turns ? now - used : now);
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
    const Accounting::Charge late = departed.succeeded
                                        ? accounting.take_former_charge(pid, *departed.succeeded)
                                        : accounting.take_charge(pid);
    departed.owed.add(late);
    const std::optional<uint32_t> tenant = state_.tenants.find(departed.tenant);
    turns.add_late(departed);
    if (tenant) {
      charge(departed.process, *tenant, departed.gpu, departed.owed);
      of_departed_[{*tenant, departed.gpu}] += departed.owed.used;
    }
    departed.owed = {};
    const Time until = departed.succeeded.value_or(departed.until);
    const bool was_known = !departed.tenant.empty();
    const bool is_over =
        (was_known && !tenant) || (now >= until && logs.is_read_until(departed.gpu, until));
    if (is_over && departed.succeeded) accounting.remove_former(pid, until);
    if (is_over && !departed.succeeded) accounting.remove(pid);
    return is_over;
  });
}

}  // namespace gpushare
