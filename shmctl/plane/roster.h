// SPDX-License-Identifier: Apache-2.0
// Roster: what was set at run time and must outlive the agent: tenants with their settings, which
// process or scope (cgroup) belongs to which, what the user froze. It lists tenants by their slots,
// and processes whether they are on a GPU or not. The agent writes it ahead: when a request is
// answered, it is here. The next agent reads it at its start and goes on writing it where it lies,
// so that no death loses anything, however soon it comes. It outlives a clean stop too; `gpushare
// forget` drops it.
//
// Each put and erase is one write of one Slot (slots.h): an agent that dies at any instruction
// leaves the entry as it was before or as it is after. One thread of one process at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
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
  // Adds or changes the entry of this process. One without flags is erased. When all
  // kMaxRosterProcesses entries are taken, the tenant in which most processes have inherited their
  // place loses the entry of the oldest of these, so that who starts processes without end drives
  // out its own and nobody else's. Error no_space_on_device when there is no such entry: nothing
  // was written.
  Result<> put_process(const RosterProcess& process);
  void erase_process(const ProcessId& process);
  // Adds or changes the entry of this scope. Errors, with nothing written: no_space_on_device when
  // all kMaxRosterScopes entries are taken; filename_too_long.
  Result<> put_scope(const std::string& cgroup, uint32_t tenant);
  void erase_scope(const std::string& cgroup);
  // `instance`: of the kernel module (sysfs_tree.h), 0 if that is not known.
  void set_tenants_in_sysfs(bool are_in_sysfs, uint32_t instance = 0);

  // Rises with every change.
  uint64_t generation() const { return generation_; }
  // All that it lists.
  struct Copy {
    RosterHead head;
    std::map<uint32_t, RosterTenant> tenants;  // by slot
    std::vector<RosterProcess> processes;
    std::map<std::string, uint32_t> scopes;  // the tenant's slot by cgroup
  };
  Copy copy() const;

  // Call fn(slot, tenant), fn(process) and fn(cgroup, tenant's slot) for every entry that is taken,
  // names terminated. fn may put and erase.
  void for_each_tenant(const std::function<void(uint32_t, const RosterTenant&)>& fn) const;
  void for_each_process(const std::function<void(const RosterProcess&)>& fn) const;
  void for_each_scope(const std::function<void(const std::string&, uint32_t)>& fn) const;
  // Entries that put_process() has taken from processes since this object was made, by the slot of
  // their tenant.
  const std::map<uint32_t, uint64_t>& driven_out() const { return driven_out_; }
  // Whether the tenants were those of the kernel module, and that was loaded as this instance.
  bool are_tenants_in_sysfs(uint32_t instance = 0) const {
    return head_.are_tenants_in_sysfs != 0 && head_.module_instance == instance;
  }

 private:
  using Heirs = std::map<std::pair<uint64_t, int32_t>, uint32_t>;  // by start and pid: the entry

  void write(uint32_t index, const RosterProcess& process);
  bool drive_one_out(uint32_t by_tenant);

  Region& region_;
  // A copy of what the region holds: to find entries, and to write only what differs.
  RosterHead head_;
  std::vector<RosterTenant> tenants_;
  std::vector<RosterProcess> processes_;
  std::map<ProcessId, uint32_t> by_process_;
  std::vector<uint32_t> free_;       // the last is taken next: the lowest
  std::map<uint32_t, Heirs> heirs_;  // by tenant: who has only inherited its place
  std::map<uint32_t, uint64_t> driven_out_;
  std::map<std::string, uint32_t> by_scope_;  // the entry
  std::vector<uint32_t> scope_tenants_;       // by entry
  std::vector<uint32_t> free_scopes_;
  uint64_t generation_ = 1;
};

}  // namespace gpushare
