// SPDX-License-Identifier: Apache-2.0
#include "sched/step/membership.h"

#include "sched/tenants/identity.h"
#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"

namespace gpushare {

Membership::Membership(State& state, Region& region, const ProcReader& processes)
    : state_(state), region_(region), processes_(processes) {
  state_.tenants.leave_all_gpus();
  for (uint32_t slot = kMaxProcesses; slot-- > 0;) {
    free_slots_.push_back(slot);
    // What an agent before us left.
    if (is_written(region_.processes[slot].record))
      write_record(region_.processes[slot].record, ProcessRecord{});
  }
}

bool Membership::sync(Time now) {
  const bool is_current = registry_seen_ == state_.registry.generation() &&
                          tenants_seen_ == state_.tenants.generation();
  if (is_current) return false;
  registry_seen_ = state_.registry.generation();

  for (auto at = state_.members.begin(); at != state_.members.end();) {
    const auto& [key, member] = *at;
    if (state_.registry.holder(key.first, key.second) == nullptr) {
      remove(key, member.slot);
      at = state_.members.erase(at);
    } else {
      ++at;
    }
  }
  std::erase_if(met_, [&](const auto& met) {
    const Process* known = state_.registry.find(met.first.pid);
    if (known != nullptr && known->id == met.first) return false;
    if (processes_.has_ended(met.first))
      state_.tenants.end_process(met.first);
    else
      state_.tenants.leave_gpus(met.first);
    return true;
  });
  for (const auto& [pid, process] : state_.registry.processes()) {
    if (!process.holders.empty()) meet(process);
    for (const Holder& holder : process.holders) add(holder, now);
  }
  for (auto& [key, member] : state_.members) {
    member.tenant = state_.tenants.tenant_of(key.first);
    member.is_frozen_by_user = state_.tenants.is_frozen(key.first);
  }
  tenants_seen_ = state_.tenants.generation();
  return true;
}

// Its tenant is decided when it first has something to schedule.
void Membership::meet(const Process& process) {
  if (!met_.contains(process.id)) place(process);
}

void Membership::place(const Process& process) {
  ProcessIdentity identity = identity_of(process.id, processes_);
  if (identity.command.empty()) identity.command = process.command;  // it has just ended
  if (process.uid && identity.uid != *process.uid) {  // it has made itself another since
    identity.uid = *process.uid;
    identity.user = processes_.user_name(identity.uid).value_or("");
  }
  met_[process.id] = {.command_line = identity.command_line,
                      .uid = identity.uid,
                      .is_named = processes_.user_name(identity.uid).has_value()};
  state_.tenants.add_process(std::move(identity));
}

void Membership::name_users() {
  for (const auto& [id, met] : met_) {
    if (met.is_named || !processes_.user_name(met.uid)) continue;
    const Process* const known = state_.registry.find(id.pid);
    if (known != nullptr && known->id == id) place(*known);
  }
}

void Membership::add(const Holder& holder, Time now) {
  const MemberKey key{holder.process, holder.gpu};
  if (state_.members.contains(key)) return;
  if (free_slots_.empty()) {
    if (!has_warned_full_)
      log_warning("more than {} processes on the GPUs: those that came last are not managed",
                  kMaxProcesses);
    has_warned_full_ = true;
    return;
  }
  Member& member = state_.members[key];
  member.slot = free_slots_.back();
  free_slots_.pop_back();
  member.command_line = met_[holder.process].command_line;
  member.state_since = member.came = now;
  region_.processes[member.slot].bucket.disable();
  state_.accounting[holder.gpu].add(holder.process.pid, now);
}

void Membership::remove(const MemberKey& key, uint32_t slot) {
  const auto& [process, gpu] = key;
  state_.enforcer.forget(process, gpu);
  // The pid may have a new bearer already, who then starts a new account.
  state_.accounting[gpu].remove(process.pid);
  write_record(region_.processes[slot].record, ProcessRecord{});
  free_slots_.push_back(slot);
}

void Membership::reap() {
  end_the_dead(state_.tenants, processes_);
  std::vector<ProcessId> ended;
  for (const auto& [pid, process] : state_.registry.processes())
    if (!processes_.is_alive(process.id)) ended.push_back(process.id);
  for (const ProcessId& process : ended) state_.registry.close(process);
}

}  // namespace gpushare
