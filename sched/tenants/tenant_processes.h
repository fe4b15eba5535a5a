// SPDX-License-Identifier: Apache-2.0
// TenantProcesses: the processes that Tenants (tenants.h) knows, with their attachment, their
// freeze and their run, and their part of the roster. What a process inherits is looked up here.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sched/tenants/rules.h"
#include "sched/tenants/tenant_table.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/roster.h"

namespace gpushare {

struct TenantProcess {
  // What one `gpushare run` has begun.
  struct Run {
    uint32_t number = 0;  // 0: the process belongs to none
    Time asked{};         // zero: an agent before this one was asked
  };

  std::optional<ProcessIdentity> identity;  // none: known by attachment or freeze only
  bool is_attached = false;                 // explicitly, or inherited at first sight
  bool is_heir = false;                     // attached only because it inherited that
  bool is_frozen = false;                   // by the user
  uint32_t slot = kDefaultTenant;
  bool is_run_heir = false;  // `run` is an ancestor's
  Run run{};                 // that it began, or that an ancestor did, as known at first sight

  bool is_noted() const {  // in the roster
    return is_attached || is_frozen || run.number != 0;
  }
};

class TenantProcesses {
 public:
  // Takes over the processes that `roster` has (nullptr: none, and nothing is written). An
  // attachment to a tenant that `has_tenant` denies is logged and dropped.
  TenantProcesses(Roster* roster, const std::function<bool(uint32_t)>& has_tenant);

  std::map<ProcessId, TenantProcess>& all() { return all_; }
  const std::map<ProcessId, TenantProcess>& all() const { return all_; }
  const TenantProcess* find(const ProcessId& process) const;  // nullptr: it is not known
  // A copy to change, that of an unknown process for one.
  TenantProcess copy_of(const ProcessId& process) const;
  // Writes `member` into the roster, and then in place of what was known; only forgets the process
  // if nothing keeps it. Error: no_space_on_device, and nothing has changed.
  Result<> put(const ProcessId& process, TenantProcess member);
  // Writes a member that has changed in place; warns, once, if the roster is full.
  void note_or_warn(const ProcessId& process, const TenantProcess& member);
  void erase(const ProcessId& process);  // from the roster, too
  // No process is frozen by the user any more. Forgets those that nothing else keeps.
  void thaw_all();

  const TenantProcess* attached_ancestor(const ProcessIdentity& identity) const;
  TenantProcess::Run inherited_run(const ProcessIdentity& identity) const;
  bool has_run(uint32_t number) const;  // whether a process of it is known
  // The pid, or the next number for a run that no living process has.
  uint32_t free_run_number(const ProcessId& process) const;

 private:
  void take_over(const std::function<bool(uint32_t)>& has_tenant);
  Result<> note(const ProcessId& process, const TenantProcess& member);

  Roster* roster_;
  std::map<ProcessId, TenantProcess> all_;
  bool has_warned_full_ = false;
  bool has_warned_driven_out_ = false;
};

}  // namespace gpushare
