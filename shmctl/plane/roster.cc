// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/roster.h"

#include <fmt/core.h>

#include <cassert>

namespace gpushare {
namespace {

// What no writer overtakes can always be read: the agent that wrote is gone.
template <class T>
T last_record(const Slot<T>& slot) {
  return is_written(slot) ? read_record(slot).value_or(T{}) : T{};
}

}  // namespace

Roster::Roster(Region& region)
    : region_(region),
      head_(last_record(region.roster)),
      tenants_(kMaxTenants),
      processes_(kMaxRosterProcesses) {
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    tenants_[slot] = last_record(region.roster_tenants[slot]);
    tenants_[slot].name[sizeof(RosterTenant::name) - 1] = '\0';
  }
  for (uint32_t index = kMaxRosterProcesses; index-- > 0;) {
    const RosterProcess found = last_record(region.roster_processes[index]);
    const bool is_first =
        found.pid != 0 && by_process_.try_emplace({found.pid, found.start_ticks}, index).second;
    if (is_first)
      processes_[index] = found;
    else
      free_.push_back(index);
  }
}

void Roster::put_tenant(uint32_t slot, const RosterTenant& tenant) {
  assert(slot < kMaxTenants);
  if (tenants_[slot] == tenant) return;
  tenants_[slot] = tenant;
  write_record(region_.roster_tenants[slot], tenant);
}

Result<> Roster::put_process(const RosterProcess& process) {
  const ProcessId id{process.pid, process.start_ticks};
  if (process.flags == 0) {
    erase_process(id);
    return {};
  }
  const auto known = by_process_.find(id);
  if (known == by_process_.end() && free_.empty())
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
  processes_[index] = process;
  write_record(region_.roster_processes[index], process);
  return {};
}

void Roster::erase_process(const ProcessId& process) {
  const auto known = by_process_.find(process);
  if (known == by_process_.end()) return;
  const uint32_t index = known->second;
  by_process_.erase(known);
  processes_[index] = {};
  write_record(region_.roster_processes[index], RosterProcess{});
  free_.push_back(index);
}

void Roster::set_tenants_in_sysfs(bool are_in_sysfs) {
  if (are_in_sysfs == are_tenants_in_sysfs()) return;
  head_.are_tenants_in_sysfs = are_in_sysfs;
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

}  // namespace gpushare
