// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenant_processes.h"

#include <algorithm>
#include <utility>

#include "shmctl/base/log.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

TenantProcesses::TenantProcesses(Roster* roster, const std::function<bool(uint32_t)>& has_tenant)
    : roster_(roster) {
  if (roster_ != nullptr) take_over(has_tenant);
}

// Nothing is written but what must go.
void TenantProcesses::take_over(const std::function<bool(uint32_t)>& has_tenant) {
  roster_->for_each_process([&](const RosterProcess& record) {
    const ProcessId process{record.pid, record.start_ticks};
    TenantProcess member;
    member.is_frozen = (record.flags & kRosterFrozen) != 0;
    member.is_attached = (record.flags & kRosterAttached) != 0;
    if (member.is_attached && !has_tenant(record.tenant)) {
      log_warning("process {} is not in its tenant any more, which is lost", process.pid);
      member.is_attached = false;
    }
    if (member.is_attached) member.slot = record.tenant;
    member.is_heir = member.is_attached && (record.flags & kRosterInherited) != 0;
    member.is_run_heir = !member.is_attached && (record.flags & kRosterInherited) != 0;
    member.run.number = record.run;
    if (member.is_noted()) all_.emplace(process, member);
    note_or_warn(process, member);
  });
}

const TenantProcess* TenantProcesses::find(const ProcessId& process) const {
  const auto found = all_.find(process);
  return found == all_.end() ? nullptr : &found->second;
}

TenantProcess TenantProcesses::copy_of(const ProcessId& process) const {
  const TenantProcess* known = find(process);
  return known == nullptr ? TenantProcess{} : *known;
}

Result<> TenantProcesses::note(const ProcessId& process, const TenantProcess& member) {
  if (roster_ == nullptr) return {};
  const bool is_inherited = member.is_attached ? member.is_heir : member.is_run_heir;
  return roster_->put_process(
      {.pid = process.pid,
       .tenant = member.is_attached ? member.slot : kDefaultTenant,
       .start_ticks = process.start_ticks,
       .flags = (member.is_attached ? kRosterAttached : 0) | (is_inherited ? kRosterInherited : 0) |
                (member.is_frozen ? kRosterFrozen : 0) | (member.run.number != 0 ? kRosterRun : 0),
       .run = member.run.number});
}

void TenantProcesses::note_or_warn(const ProcessId& process, const TenantProcess& member) {
  const auto noted = note(process, member);
  if (noted && roster_ != nullptr && !roster_->driven_out().empty() &&
      !std::exchange(has_warned_driven_out_, true))
    log_warning(
        "all {} entries for processes are taken; 'gpushare doctor' says whose processes "
        "belong to their tenant only until the agent ends",
        kMaxRosterProcesses);
  if (noted || std::exchange(has_warned_full_, true)) return;
  log_warning("process {} and others belong to their tenants only until the agent ends: {}",
              process.pid, noted.error().message());
}

Result<> TenantProcesses::put(const ProcessId& process, TenantProcess member) {
  if (auto noted = note(process, member); !noted) return noted;
  if (member.identity || member.is_noted())
    all_[process] = std::move(member);
  else
    all_.erase(process);
  return {};
}

void TenantProcesses::erase(const ProcessId& process) {
  if (roster_ != nullptr) roster_->erase_process(process);
  all_.erase(process);
}

void TenantProcesses::thaw_all() {
  for (auto entry = all_.begin(); entry != all_.end();) {
    TenantProcess& member = entry->second;
    member.is_frozen = false;
    note_or_warn(entry->first, member);
    entry = member.identity || member.is_noted() ? std::next(entry) : all_.erase(entry);
  }
}

const TenantProcess* TenantProcesses::attached_ancestor(const ProcessIdentity& identity) const {
  for (const ProcessId& ancestor : identity.ancestors)
    if (const TenantProcess* member = find(ancestor); member != nullptr && member->is_attached)
      return member;
  return nullptr;
}

TenantProcess::Run TenantProcesses::inherited_run(const ProcessIdentity& identity) const {
  for (const ProcessId& ancestor : identity.ancestors)
    if (const TenantProcess* member = find(ancestor); member != nullptr && member->run.number != 0)
      return member->run;
  return {};
}

bool TenantProcesses::has_run(uint32_t number) const {
  return std::ranges::any_of(all_,
                             [&](const auto& entry) { return entry.second.run.number == number; });
}

uint32_t TenantProcesses::free_run_number(const ProcessId& process) const {
  constexpr uint32_t kPids = 1U << 22;  // the kernel gives no larger ones
  auto number = static_cast<uint32_t>(process.pid);
  while (has_run(number)) number += kPids;
  return number;
}

}  // namespace gpushare
