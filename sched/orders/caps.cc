// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/caps.h"

#include <algorithm>

#include "sched/orders/times.h"
#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

constexpr Micros kUsualSlice{2'048};
constexpr Nanos kShortestWait = std::chrono::microseconds(500);
constexpr Nanos kLongestWait = std::chrono::seconds(1);

// A cap with numbers that can be computed with, whatever came in.
std::optional<CapView> sane(const std::optional<CapView>& cap) {
  if (!cap) return std::nullopt;
  constexpr Nanos kMost = 24h;
  return CapView{.fraction = cap->fraction > 0.0001 && cap->fraction <= 1 ? cap->fraction : 1,
                 .period = std::clamp(cap->period, Nanos(1'000'000), kMost),
                 .burst = std::clamp(cap->burst, Nanos{}, kMost),
                 .tokens = std::clamp(cap->tokens, -kMost, kMost)};
}

// When the bucket must be looked at again: when it has enough, or may be empty.
void wake(const std::optional<CapView>& cap, bool is_shut, Time now, Plan& plan) {
  if (!cap) return;
  const Nanos wait = is_shut ? until_resume(*cap) : until_empty(*cap);
  plan.next = std::min(plan.next, later(now, std::clamp(wait, kShortestWait, kLongestWait)));
}

}  // namespace

JobCaps::JobCaps() : tenants_(kMaxTenants), processes_(kMaxProcesses) {}

void JobCaps::decide(const Snapshot& snapshot, Plan& plan) {
  able_.clear();
  stopped_.clear();
  for (const TenantView& tenant : snapshot.tenants)
    if (tenant.id < kMaxTenants) tenants_.update(tenant.id, sane(tenant.cap));
  for (const ProcessView& process : snapshot.processes) {
    if (!process.has_context || process.id >= kMaxProcesses) continue;
    const auto tenant =
        std::ranges::lower_bound(snapshot.tenants, process.tenant, {}, &TenantView::id);
    const bool has_tenant = tenant != snapshot.tenants.end() && tenant->id == process.tenant &&
                            tenant->id < kMaxTenants;
    const std::optional<CapView> own = sane(process.cap);
    const bool is_shut = processes_.update(process.id, own);
    const bool is_tenant_shut = has_tenant && tenants_.is_shut(tenant->id);
    const bool is_frozen_by_user =
        process.is_frozen_by_user || (has_tenant && tenant->is_frozen_by_user);
    const bool is_stopped = is_shut || is_tenant_shut || is_frozen_by_user;
    if (process.job != 0) (is_stopped ? stopped_ : able_).push_back(process.job);
    if (!process.can_plan()) continue;
    Decision& decision =
        plan.decisions.emplace_back(Decision{.process = process.id, .slice = kUsualSlice});
    if (is_frozen_by_user) decision.freeze = FreezeReason::kUser;
    if (!process.wants_gpu && !process.is_frozen) continue;
    if (decision.freeze == FreezeReason::kNone && is_stopped) decision.freeze = FreezeReason::kCap;
    if (has_tenant) wake(sane(tenant->cap), is_tenant_shut, snapshot.now, plan);
    wake(own, is_shut, snapshot.now, plan);
  }
  std::ranges::sort(able_);
  std::ranges::sort(stopped_);
}

bool JobCaps::may_run(uint64_t job) const {
  return std::ranges::binary_search(able_, job) || !std::ranges::binary_search(stopped_, job);
}

}  // namespace gpushare
