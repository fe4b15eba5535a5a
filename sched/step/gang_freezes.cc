// SPDX-License-Identifier: Apache-2.0
#include "sched/step/gang_freezes.h"

#include <algorithm>
#include <string>

#include "sched/policy/cap_gate.h"

namespace gpushare {

void GangFreezes::see(const OnGpu& on, bool is_auto, Time now) {
  for (const ProcessView& process : on.views->processes()) {
    if (!process.has_context) continue;
    const Member& member = state_.members.at({process.process, on.gpu});
    const Tenant* const tenant = state_.tenants.at(process.tenant);
    const TenantGang gang = tenant == nullptr ? TenantGang::kAuto : tenant->settings.gang;
    const CapView* const cap = on.views->cap_of(process.tenant);
    GangTurns::Key job{.tenant = gang == TenantGang::kTrue ? process.tenant + 1 : 0};
    if (job.tenant == 0) job.run = member.run;
    if (job.tenant == 0 && member.run == 0) job.process = process.process;
    seen_.push_back(
        {.process = process.process,
         .gpu = on.gpu,
         .slot = process.tenant,
         .job = job,
         .priority = tenant == nullptr ? Priority::kNormal : tenant->priority,
         // While it is frozen it looks as it did before.
         .wants_gpu = process.wants_gpu && !process.is_frozen_by_user,
         .may_be_gang = gang == TenantGang::kTrue || (gang == TenantGang::kAuto && is_auto),
         .is_told = gang == TenantGang::kTrue,
         .is_sampled = state_.accounting[on.gpu].is_sampled(now),
         .tenant = tenant == nullptr ? std::string_view() : tenant->name,
         .can_hold = process.can_control && !process.is_frozen_by_user &&
                     !charging_.is_serving(process.process) && !charging_.is_gated(process.process),
         .cap = cap == nullptr ? 1 : cap->fraction,
         .used = process.used - process.returned,
         .known_until = state_.accounting[on.gpu].known_until(),
         .share = process.share,
         .rate = state_.accounting[on.gpu].sampled_rate(process.process.pid, now),
         .target = member.target,
         .is_capped = cap != nullptr && is_shut(*cap, member.freeze == FreezeReason::kCap)});
  }
}

void GangFreezes::look(Time now, std::span<const OnGpu> gpus, bool is_auto) {
  seen_.clear();
  const auto asks_for_it = [&](const OnGpu& on) {
    return std::ranges::any_of(on.views->processes(), [&](const ProcessView& process) {
      const Tenant* const tenant = state_.tenants.at(process.tenant);
      return tenant != nullptr && tenant->settings.gang == TenantGang::kTrue;
    });
  };
  if (gpus.size() > 1 && (is_auto || std::ranges::any_of(gpus, asks_for_it)))
    for (const OnGpu& on : gpus)
      if (on.is_sliced && state_.gpu_problems[on.gpu].empty() &&
          state_.accounting[on.gpu].has_log())
        see(on, is_auto, now);
  turns_.look(now, seen_, charging_.of_departed());
  if (!turns_.holds_anybody()) return;
  for (const OnGpu& on : gpus)
    on.views->set_held(
        [&](const ProcessId& process) { return turns_.held(process, on.gpu) != nullptr; });
}

void GangFreezes::freeze(uint32_t gpu, Plan& plan, std::span<Entry* const> by_slot) const {
  if (!turns_.holds_anybody()) return;
  for (Decision& decision : plan.decisions) {
    const std::string* const why = turns_.held(by_slot[decision.process]->first.first, gpu);
    if (why == nullptr || decision.freeze == FreezeReason::kUser ||
        decision.freeze == FreezeReason::kCap)
      continue;
    decision.freeze = FreezeReason::kTurn;
    decision.reason = *why;
  }
}

}  // namespace gpushare
