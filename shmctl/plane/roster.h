// SPDX-License-Identifier: Apache-2.0
// Roster: what was set at run time and must outlive the agent: tenants with their settings, which
// process belongs to which, what the user froze. It lists tenants by their slots, and processes
// whether they are on a GPU or not. The agent writes it ahead: when a request is answered, it is
// here. The next agent reads it at its start and goes on writing it where it lies, so that no death
// loses anything, however soon it comes. It outlives a clean stop too; `gpushare forget` drops it.
//
// Each put and erase is one write of one Slot (slots.h): an agent that dies at any instruction
// leaves the entry as it was before or as it is after. One thread of one process at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class Roster {
 public:
  // Takes over what the region lists. `region` must outlive the roster.
  explicit Roster(Region& region);

  // REQUIRES: slot < kMaxTenants.
  void put_tenant(uint32_t slot, const RosterTenant& tenant);
  void erase_tenant(uint32_t slot) { put_tenant(slot, {}); }
  // Adds or changes the entry of this process. One without flags is erased. Error
  // no_space_on_device when all kMaxRosterProcesses entries are taken: nothing was written.
  Result<> put_process(const RosterProcess& process);
  void erase_process(const ProcessId& process);
  void set_tenants_in_sysfs(bool are_in_sysfs);

  // Call fn(slot, tenant) and fn(process) for every entry that is taken, names terminated. fn may
  // put and erase.
  void for_each_tenant(const std::function<void(uint32_t, const RosterTenant&)>& fn) const;
  void for_each_process(const std::function<void(const RosterProcess&)>& fn) const;
  bool are_tenants_in_sysfs() const { return head_.are_tenants_in_sysfs != 0; }

 private:
  Region& region_;
  // A copy of what the region holds: to find entries, and to write only what differs.
  RosterHead head_;
  std::vector<RosterTenant> tenants_;
  std::vector<RosterProcess> processes_;
  std::map<ProcessId, uint32_t> by_process_;
  std::vector<uint32_t> free_;  // the last is taken next: the lowest
};

}  // namespace gpushare
