// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/roster.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <iterator>

namespace gpushare {
namespace {

bool is_heir(const RosterProcess& process) {
  return (process.flags & kRosterInherited) != 0 && (process.flags & kRosterFrozen) == 0;
}

}  // namespace

Roster::Roster(Region& region)
    : region_(region),
      head_(last_record(region.roster)),
      tenants_(kMaxTenants),
      processes_(kMaxRosterProcesses),
      scope_tenants_(kMaxRosterScopes) {
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    tenants_[slot] = last_record(region.roster_tenants[slot]);
    tenants_[slot].name[sizeof(RosterTenant::name) - 1] = '\0';
  }
  for (uint32_t index = kMaxRosterProcesses; index-- > 0;) {
    const RosterProcess found = last_record(region.roster_processes[index]);
    const bool is_first =
        found.pid != 0 && by_process_.try_emplace({found.pid, found.start_ticks}, index).second;
    if (!is_first) {
      free_.push_back(index);
      continue;
    }
    processes_[index] = found;
    if (is_heir(found)) heirs_[found.tenant][{found.start_ticks, found.pid}] = index;
  }
  for (uint32_t index = kMaxRosterScopes; index-- > 0;) {
    RosterScope found = last_record(region.roster_scopes[index]);
    found.cgroup[sizeof found.cgroup - 1] = '\0';
    scope_tenants_[index] = found.tenant;
    const bool is_first =
        found.cgroup[0] != '\0' && by_scope_.try_emplace(found.cgroup, index).second;
    if (!is_first) free_scopes_.push_back(index);
  }
}

void Roster::put_tenant(uint32_t slot, const RosterTenant& tenant) {
  assert(slot < kMaxTenants);
  if (tenants_[slot] == tenant) return;
  tenants_[slot] = tenant;
  ++generation_;
  write_record(region_.roster_tenants[slot], tenant);
}

Result<> Roster::put_process(const RosterProcess& process) {
  const ProcessId id{process.pid, process.start_ticks};
  if (process.flags == 0) {
    erase_process(id);
    return {};
  }
  const auto known = by_process_.find(id);
  if (known == by_process_.end() && free_.empty() && !drive_one_out(process.tenant))
    return make_error(std::errc::no_space_on_device, "note a process",
                      fmt::format("all {} entries for processes that were attached or frozen are "
                                  "taken",
                                  kMaxRosterProcesses));
  uint32_t index = 0;
  if (known != by_process_.end()) {
    index = known->second;
    if (processes_[index] == process) return {};
  } else {
    index = free_.back();
    free_.pop_back();
    by_process_.emplace(id, index);
  }
  write(index, process);
  return {};
}

void Roster::write(uint32_t index, const RosterProcess& process) {
  const RosterProcess& before = processes_[index];
  if (is_heir(before)) heirs_[before.tenant].erase({before.start_ticks, before.pid});
  if (is_heir(process)) heirs_[process.tenant][{process.start_ticks, process.pid}] = index;
  processes_[index] = process;
  ++generation_;
  write_record(region_.roster_processes[index], process);
}

// Where several tenants have as many, the one that asks for more.
bool Roster::drive_one_out(uint32_t by_tenant) {
  const auto most = std::ranges::max_element(heirs_, {}, [by_tenant](const auto& heirs) {
    return std::pair(heirs.second.size(), heirs.first == by_tenant);
  });
  if (most == heirs_.end() || most->second.empty()) return false;
  const auto [start_ticks, pid] = most->second.begin()->first;
  ++driven_out_[most->first];
  erase_process({pid, start_ticks});
  return true;
}

void Roster::erase_process(const ProcessId& process) {
  const auto known = by_process_.find(process);
  if (known == by_process_.end()) return;
  const uint32_t index = known->second;
  by_process_.erase(known);
  write(index, RosterProcess{});
  free_.push_back(index);
}

Result<> Roster::put_scope(const std::string& cgroup, uint32_t tenant) {
  RosterScope scope;
  if (cgroup.size() >= sizeof scope.cgroup)
    return make_error(std::errc::filename_too_long, "note a scope",
                      fmt::format("the path of its cgroup has {} bytes, of {} at most",
                                  cgroup.size(), sizeof scope.cgroup - 1));
  const auto known = by_scope_.find(cgroup);
  if (known != by_scope_.end() && scope_tenants_[known->second] == tenant) return {};
  if (known == by_scope_.end() && free_scopes_.empty())
    return make_error(std::errc::no_space_on_device, "note a scope",
                      fmt::format("all {} entries for scopes are taken", kMaxRosterScopes));
  const uint32_t index = known != by_scope_.end() ? known->second : free_scopes_.back();
  if (known == by_scope_.end()) {
    free_scopes_.pop_back();
    by_scope_.emplace(cgroup, index);
  }
  cgroup.copy(scope.cgroup, cgroup.size());
  scope.tenant = scope_tenants_[index] = tenant;
  ++generation_;
  write_record(region_.roster_scopes[index], scope);
  return {};
}

void Roster::erase_scope(const std::string& cgroup) {
  const auto known = by_scope_.extract(cgroup);
  if (!known) return;
  ++generation_;
  write_record(region_.roster_scopes[known.mapped()], RosterScope{});
  free_scopes_.push_back(known.mapped());
}

void Roster::set_tenants_in_sysfs(bool are_in_sysfs, uint32_t instance) {
  const RosterHead head{.are_tenants_in_sysfs = are_in_sysfs, .module_instance = instance};
  if (head == head_) return;
  head_ = head;
  ++generation_;
  write_record(region_.roster, head_);
}

void Roster::for_each_tenant(const std::function<void(uint32_t, const RosterTenant&)>& fn) const {
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    const RosterTenant tenant = tenants_[slot];
    if (tenant.name[0] != '\0') fn(slot, tenant);
  }
}

void Roster::for_each_process(const std::function<void(const RosterProcess&)>& fn) const {
  for (const RosterProcess process : std::vector(processes_))
    if (process.pid != 0) fn(process);
}

void Roster::for_each_scope(const std::function<void(const std::string&, uint32_t)>& fn) const {
  for (const auto& [cgroup, index] : std::map(by_scope_)) fn(cgroup, scope_tenants_[index]);
}

Roster::Copy Roster::copy() const {
  Copy all{.head = head_, .tenants = {}, .processes = {}, .scopes = {}};
  for_each_tenant([&](uint32_t slot, const RosterTenant& tenant) { all.tenants[slot] = tenant; });
  std::ranges::copy_if(processes_, std::back_inserter(all.processes),
                       [](const RosterProcess& process) { return process.pid != 0; });
  for (const auto& [cgroup, index] : by_scope_) all.scopes[cgroup] = scope_tenants_[index];
  return all;
}

}  // namespace gpushare
