// SPDX-License-Identifier: Apache-2.0
#include "sched/step/membership.h"

#include <algorithm>
#include <utility>

#include "sched/step/turn_taking.h"
#include "sched/tenants/identity.h"
#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// A process ends before the driver takes its channels down, which took 0.1 s on an H200.
constexpr Nanos kLogRunsBehind = std::chrono::milliseconds(200);
// A process whose command line stays empty has made it so.
constexpr int kMostLooks = 10;

}  // namespace

Membership::Membership(State& state, Region& region, const ProcReader& processes,
                       const KeptOwners& owners)
    : state_(state), region_(region), processes_(processes), owners_(owners) {
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
      remove(key, member, now);
      at = state_.members.erase(at);
    } else {
      ++at;
    }
  }
  std::erase_if(met_, [&](const auto& met) {
    if (state_.registry.find(met.first) != nullptr) return false;
    state_.tenants.leave_gpus(met.first);
    return true;
  });
  for (const auto& [pid, process] : state_.registry.processes()) {
    if (!process.holders.empty()) meet(process);
    for (const Holder& holder : process.holders) add(holder, now);
  }
  for (auto& [key, member] : state_.members) {
    member.holder = state_.registry.holder(key.first, key.second);
    member.tenant = state_.tenants.tenant_of(key.first);
    member.run = state_.tenants.run_of(key.first).number;
    member.is_frozen_by_user = state_.tenants.is_frozen(key.first);
  }
  for (auto& on : state_.members_on) on.clear();
  for (auto& entry : state_.members) state_.members_on[entry.first.second].push_back(&entry);
  tenants_seen_ = state_.tenants.generation();
  return true;
}

// Its tenant is decided when it first has something to schedule.
void Membership::meet(const Process& process) {
  if (!met_.contains(process.id)) place(process);
}

void Membership::place(const Process& process) {
  ProcessIdentity identity = identity_of(process.id, processes_);
  if (process.ended) recall(process, identity);
  if (identity.command.empty()) identity.command = process.command;  // it has just ended
  if (process.uid && identity.uid != *process.uid) {  // it has made itself another since
    identity.uid = *process.uid;
    const auto user = processes_.user_name(identity.uid);
    identity.user = user.value_or("");
    identity.is_whole = identity.is_whole && user;
  }
  Met& met = met_[process.id];
  met.command = identity.command;
  met.command_line = identity.command_line;
  met.uid = identity.uid;
  met.owners.clear();
  for (const UserIdentity& owner : identity.owners) met.owners.push_back(owner.uid);
  met.cgroup = identity.cgroup_path;
  met.is_named = identity.is_whole;
  state_.tenants.add_process(std::move(identity));
}

// One that had ended before this agent saw it: it is what it was for the one before.
void Membership::recall(const Process& process, ProcessIdentity& identity) {
  const KeptOwners::Owner* const was = owners_.former(process.id);
  if (was == nullptr || !identity.command_line.empty()) return;
  identity.uid = was->uid;
  identity.user = processes_.user_name(was->uid).value_or("");
  identity.command = was->command;
  identity.command_line = was->command_line;
  // Who was attached is so by the roster, unless that was dropped. Others were in a tenant by a
  // rule, of which not all that it goes by is known any more.
  if (was->tenant.empty() || state_.tenants.is_attached(process.id)) return;
  const Tenant* const by_rules = state_.tenants.at(state_.tenants.place_of(identity));
  if (by_rules != nullptr && by_rules->name == was->tenant) return;
  if (const auto attached = state_.tenants.attach(process.id, was->tenant); !attached)
    log_warning("process {}, which has ended, was in {}: {}", process.id.pid, was->tenant,
                attached.error().message());
}

// The name service has said who its user is, and who has made the namespaces that it is in, and a
// disk which container it is in.
bool Membership::is_known_by_name(const Met& met) const {
  const auto is_named = [this](uid_t uid) { return processes_.user_name(uid).has_value(); };
  return is_named(met.uid) && std::ranges::all_of(met.owners, is_named) &&
         processes_.container(met.cgroup).has_value();
}

void Membership::look_again() {
  for (auto& [id, met] : met_) {
    const bool wants_line = met.command_line.empty() && met.looks < kMostLooks;
    if (wants_line) ++met.looks;
    const bool has_name = !met.is_named && is_known_by_name(met);
    const Process* const known = state_.registry.find(id);
    // Of one that has ended nothing more can be read.
    if ((!wants_line && !has_name) || known == nullptr || known->ended) continue;
    place(*known);
    for (auto at = state_.members.lower_bound({id, 0});
         at != state_.members.end() && at->first.first == id; ++at) {
      at->second.command = met.command;
      at->second.command_line = met.command_line;
    }
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
  const auto& met = met_[holder.process];
  member.command = met.command;
  member.command_line = met.command_line;
  member.user = met.uid;
  member.state_since = member.came = now;
  region_.processes[member.slot].bucket.disable();
  open_account(holder, now);
}

// Its account stays: the log is read after this, and runs behind.
void Membership::remove(const MemberKey& key, const Member& member, Time now) {
  const auto& [process, gpu] = key;
  state_.enforcer.forget(process, gpu);
  state_.accounting[gpu].end(process.pid, now);
  if (const Tenant* const tenant = state_.tenants.at(member.tenant))
    state_.departed.push_back(
        {.process = process,
         .gpu = gpu,
         .tenant = tenant->name,
         .job = state_.turns == nullptr ? 0 : state_.turns->job_of(process),
         .was_starting = state_.turns != nullptr && state_.turns->is_starting(process, gpu),
         .until = now + kLogRunsBehind});
  else
    state_.accounting[gpu].remove(process.pid);
  write_record(region_.processes[member.slot].record, ProcessRecord{});
  free_slots_.push_back(member.slot);
}

// The log knows pids alone: what it tells of the time before this process came is of the earlier
// bearer of its pid.
void Membership::open_account(const Holder& holder, Time now) {
  const pid_t pid = holder.process.pid;
  Accounting& accounting = state_.accounting[holder.gpu];
  const auto earlier = std::ranges::find_if(state_.departed, [&](const Departed& one) {
    return !one.succeeded && one.process.pid == pid && one.gpu == holder.gpu;
  });
  // It makes a context again: its account goes on.
  if (earlier != state_.departed.end() && earlier->process == holder.process) {
    accounting.resume(pid);
    state_.departed.erase(earlier);
    return;
  }
  const Process* const bearer = state_.registry.find(pid);
  if (earlier == state_.departed.end()) {
    accounting.add(pid, now);
    const bool was_seen_to_begin = bearer != nullptr && !bearer->is_late_attach;
    if (!was_seen_to_begin || accounting.known_until() >= bearer->seen) return;
    // An earlier bearer may not have been found yet when it ended: what it did is nobody's.
    accounting.succeed(pid, bearer->seen, now);
    state_.departed.push_back({.process = {pid, 0},
                               .gpu = holder.gpu,
                               .tenant = {},
                               .until = bearer->seen,
                               .succeeded = bearer->seen});
    return;
  }
  earlier->succeeded = bearer == nullptr ? now : bearer->seen;
  accounting.succeed(pid, *earlier->succeeded, now);
}

void Membership::reap(Time now) {
  // What a program did alone is known, and published, before its tenant may go with it.
  end_the_dead(state_.tenants, processes_, [this](const ProcessId& process) {
    return owners_.may_remain(process) ||
           std::ranges::any_of(state_.departed,
                               [&](const Departed& one) { return one.process == process; });
  });
  std::vector<ProcessId> ended;
  for (const auto& [pid, process] : state_.registry.processes())
    if (processes_.has_ended(process.id)) ended.push_back(process.id);
  for (const ProcessId& process : ended) state_.registry.end(process, now);
}

}  // namespace gpushare
