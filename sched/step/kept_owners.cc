// SPDX-License-Identifier: Apache-2.0
#include "sched/step/kept_owners.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sched/step/turn_taking.h"
#include "shmctl/base/log.h"

namespace gpushare {

KeptOwners::KeptOwners(State& state, Region& region, const ProcReader& processes,
                       uint64_t driver_load)
    : state_(state), processes_(processes), list_(region, driver_load) {
  for (const ProcessId& process : list_.processes()) {
    Owner owner = *list_.find(process);
    // Who may see whose command lines can change between two agents.
    if (processes_.hides_others()) {
      owner.command.clear();
      owner.command_line.clear();
      list_.put(owner);
    }
    awaited_.insert(process);
    state_.registry.remember({process, owner.clients});
    former_[process] = std::move(owner);
  }
}

std::vector<FormerJob> KeptOwners::former_jobs() const {
  std::vector<FormerJob> jobs;
  for (const auto& [process, owner] : former_)
    if (owner.job_arrived_ns != 0)
      jobs.push_back({.run = owner.run,
                      .process = process,
                      .arrived = Time(Nanos(owner.job_arrived_ns)),
                      .service = Nanos(owner.job_service_ns)});
  return jobs;
}

const KeptOwners::Owner* KeptOwners::former(const ProcessId& process) const {
  const auto known = former_.find(process);
  return known == former_.end() ? nullptr : &known->second;
}

bool KeptOwners::may_remain(const ProcessId& process) const {
  const Owner* const owner = list_.find(process);
  return owner != nullptr && !owner->clients.empty();
}

bool KeptOwners::has_changed() const {
  return has_reaped_ || registry_seen_ != state_.registry.generation() ||
         tenants_seen_ != state_.tenants.generation();
}

Time KeptOwners::keep(Time now) {
  const bool has_jobs = state_.turns->has_orders() && now >= next_jobs_;
  if (!has_jobs && !has_changed()) return Time::max();
  if (!has_jobs && now < next_change_) return next_change_;
  registry_seen_ = state_.registry.generation();
  tenants_seen_ = state_.tenants.generation();
  has_reaped_ = false;
  next_change_ = now + kChangeInterval;
  next_jobs_ = now + kJobInterval;
  keep_present();
  keep_absent();
  return Time::max();
}

// On any GPU. nullptr: it is not known to the plan, as all places are taken.
const Member* KeptOwners::member_of(const ProcessId& process) const {
  const auto first = state_.members.lower_bound({process, 0});
  const bool is_its = first != state_.members.end() && first->first.first == process;
  return is_its ? &first->second : nullptr;
}

KeptOwners::Seen KeptOwners::look_at(const Process& process) const {
  Seen seen;
  for (const Holder& holder : process.holders)
    seen.holders = std::max(seen.holders, holder.generation);
  seen.is_attached = state_.tenants.is_attached(process.id);
  if (const Member* const member = member_of(process.id)) {
    seen.tenant = member->tenant;
    seen.run = member->run;
    seen.line = member->command_line.size();
  }
  if (const Job* const job = state_.turns->job(process.id)) {
    seen.arrived = job->arrived;
    seen.service = std::max(job->service, Nanos{});
  } else if (const Owner* const before = list_.find(process.id)) {
    // No order is known now, on a GPU that does not answer for example.
    seen.arrived = Time(Nanos(before->job_arrived_ns));
    seen.service = Nanos(before->job_service_ns);
  }
  return seen;
}

KeptOwners::Owner KeptOwners::owner_of(const Process& process, const Seen& seen) const {
  Owner owner;
  owner.process = process.id;
  owner.run = seen.run;
  if (const Member* const member = member_of(process.id)) {
    owner.uid = member->user;
    // Who is attached is so by the roster, where a change is at once.
    const Tenant* const tenant = state_.tenants.at(seen.tenant);
    if (tenant != nullptr && !seen.is_attached) owner.tenant = tenant->name;
    if (!processes_.hides_others()) {
      owner.command = command_of(process, *member);
      owner.command_line = member->command_line;
    }
  }
  owner.job_arrived_ns = stored_ns(seen.arrived);
  owner.job_service_ns = static_cast<uint64_t>(seen.service.count());
  std::set<uint32_t> clients;
  for (const Holder& holder : process.holders)
    for (const ComputeGroup& group : holder.groups) clients.insert(group.ref.client);
  // And those that were on a GPU which is not open.
  if (const Owner* const before = list_.find(process.id))
    std::ranges::copy_if(before->clients, std::inserter(clients, clients.end()),
                         [&](uint32_t client) { return is_its(process.id, client); });
  owner.clients.assign(clients.begin(), clients.end());
  return owner;
}

void KeptOwners::keep_present() {
  for (const auto& [pid, process] : state_.registry.processes()) {
    if (process.holders.empty()) continue;
    awaited_.erase(process.id);
    const Seen seen = look_at(process);
    const auto [known, is_new] = seen_.try_emplace(process.id, seen);
    const bool is_same = std::exchange(known->second, seen) == seen && !is_new;
    const bool is_listed = list_.find(process.id) != nullptr;  // it may have been driven out
    if ((is_same && is_listed) || list_.put(owner_of(process, seen))) continue;
    seen_.erase(process.id);  // there may be room later
    if (std::exchange(has_warned_, true)) continue;
    log_warning(
        "whose clients of the driver are is noted for the next agent, and there is no room for all "
        "of process {}: what of it outlives its end while no agent is there will be nobody's",
        pid);
  }
}

// Who is on no GPU now: of its clients those that are not known to be gone, and the place of its
// job until it comes back.
void KeptOwners::keep_absent() {
  std::erase_if(seen_, [&](const auto& one) {
    const Process* const known = state_.registry.find(one.first);
    return known == nullptr || known->holders.empty();
  });
  for (const ProcessId& process : list_.processes()) {
    const Process* const known = state_.registry.find(process);
    if (known != nullptr && !known->holders.empty()) continue;
    const std::vector<uint32_t>& listed = list_.find(process)->clients;
    const auto is_there = [&](uint32_t client) { return is_its(process, client); };
    if (std::ranges::all_of(listed, is_there) && (!listed.empty() || awaited_.contains(process)))
      continue;
    Owner owner = *list_.find(process);
    std::erase_if(owner.clients, [&](uint32_t client) { return !is_there(client); });
    if (owner.clients.empty() && !awaited_.contains(process))
      list_.erase(process);
    else
      list_.put(std::move(owner));
  }
}

bool KeptOwners::is_its(const ProcessId& process, uint32_t client) const {
  return state_.registry.remembers({process, client}) || state_.registry.owns({process, client});
}

void KeptOwners::reap() {
  has_reaped_ |= std::erase_if(awaited_, [&](const ProcessId& process) {
                   return processes_.has_ended(process);
                 }) > 0;
}

}  // namespace gpushare
