// SPDX-License-Identifier: Apache-2.0
// Tenants: the set of tenants, their settings, and which process is in which. No I/O but the
// control plane's roster, one thread (the agent's). A slot is an index of the control plane's
// tenant table: stable while the tenant lives, even from one agent to the next, and reused after it
// is gone. `default` is always in slot 0.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sched/tenants/config.h"
#include "sched/tenants/rules.h"
#include "sched/tenants/tenant_processes.h"
#include "sched/tenants/tenant_table.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/roster.h"

namespace gpushare {

// A process belongs to the tenant to which it or its nearest attached ancestor was attached;
// otherwise to that of its scope; otherwise to that of the first rule that holds; otherwise to
// `default`. Inheritance is looked up once, when the process is first seen, and stays after the
// ancestor has ended. Of a process that is a daemon by then the founder of its line is the first
// ancestor (proc_reader.h); where lines are not followed it inherits nothing, and a rule by cgroup
// is for those.
//
// The settings of a tenant are the defaults, overlaid by the file, overlaid by what was set at run
// time. At the start of an agent what was set at run time holds as before, also over a file that
// has changed. On reload the file wins for every key that it names, and the rest of what was set at
// run time stays:
//   file   [tenant.a] weight=300        set a weight=500 max=30%      -> 500, 30%
//   reload [tenant.a] weight=200                                      -> 200, 30%
//   reload (no tenant.a any more)                                     -> 100, 30%
// A tenant that only the file made goes when the file no longer names it; one that was made or
// changed at run time stays until it is removed or forgotten, and so do those above it.
//
// Tenants make a tree by their names: "team/job" is below "team". What of one above binds those
// below is in Tenant (tenant_table.h). A process is in one tenant, and not in those above it.
class Tenants {
 public:
  // Without a roster nothing outlives the object. With one, whatever an agent before has left there
  // is taken over in place, and every change is in it when the function that makes it returns; what
  // cannot be taken over is logged and dropped. `roster` outlives the object.
  Tenants() : Tenants(nullptr) {}
  explicit Tenants(Roster* roster);

  // --- tenants. Errors say what was wrong and leave everything as it was; a name that is not known
  // is no_such_file_or_directory.
  // nullptr: the slot is free
  const Tenant* at(uint32_t slot) const { return table_.at(slot); }
  std::optional<uint32_t> find(std::string_view name) const { return table_.find(name); }
  std::vector<uint32_t> slots() const { return table_.slots(); }  // those in use, ascending
  // Visits the tenant and all above it, from below: visit(slot, tenant). REQUIRES: it is in use.
  template <class Visit>
  void for_line(uint32_t slot, const Visit& visit) const {
    const Tenant& own = *at(slot);
    visit(slot, own);
    for (const uint32_t above : own.above) visit(above, *at(above));
  }
  // The one whose partition of the SMs is the tenant's: that at the top of the tree. REQUIRES: it
  // is in use.
  uint32_t top_of(uint32_t slot) const { return at(slot)->top(slot); }

  // Applies all changes or none, and returns the slot. `create`: makes the tenant if it is not
  // there; the one right above it must be. Errors also: invalid_argument; no_space_on_device when
  // all slots are in use.
  Result<uint32_t> set(std::string_view name, std::span<const Setting> changes, bool create);
  // The tenant's processes go into the one right above it, which binds them as it did, and those of
  // one at the top where the rules say. A tenant that the file names is made again by
  // the next reload. Errors: operation_not_permitted for `default`; device_or_resource_busy while
  // there are others below it.
  Result<> remove(std::string_view name);
  // By the user. Returns the slot. All below it in the tree are frozen with it.
  Result<uint32_t> set_frozen(std::string_view name, bool is_frozen);
  // The one of the tenant and those above it that is frozen, the highest of several; nullptr: none
  // is. REQUIRES: `slot` is in use.
  const Tenant* frozen_with(uint32_t slot) const;
  // Caps of single GPUs, by index. REQUIRES: `slot` is in use.
  void set_gpu_caps(uint32_t slot, std::map<uint32_t, Cap> caps);
  // No tenant and no process is frozen by the user any more.
  void thaw_all();
  // Drops what was set at run time: tenants that the file does not name go as by remove(), the
  // settings of the others are the file's again, and all is thawed. Processes stay in tenants that
  // stay.
  void forget();
  // Makes a tenant for `root` alone and its future children, attaches `root`, and returns the slot.
  // Its name is `run-PID`, or `run-PID.2` and so on when that is taken (by a run around this one,
  // or because the pid was used before).
  Result<uint32_t> create_transient(ProcessId root, std::span<const Setting> settings);
  // The name that create_transient() would give.
  std::string transient_name(ProcessId root) const;
  // From now on the tenant goes with its last process. REQUIRES: `slot` is in use.
  void mark_transient(uint32_t slot) { table_.mark_transient(slot); }
  // Transient tenants without a process go.
  void drop_the_finished();
  // Take over a new configuration as said above: at an agent's start, and later. Error:
  // no_space_on_device, and nothing else.
  Result<> start(const TenantsConfig& config) { return take(config, /*does_file_win=*/false); }
  Result<> reload(const TenantsConfig& config) { return take(config, /*does_file_win=*/true); }
  // Whoever keeps something by slot has seen the slots of tenants that are gone free, so that they
  // may be used again. Before, that happens only when no other slot is left.
  void reuse_slots() { table_.reuse_slots(); }

  // --- processes.
  // Adds a process that the agent sees on a GPU, and returns its tenant's slot. A further call with
  // the same id replaces what is known of it (after exec, or in another cgroup); an attachment
  // stays.
  uint32_t add_process(ProcessIdentity identity);
  // The slot that add_process() would return.
  uint32_t place_of(const ProcessIdentity& identity) const;
  // `process` may be on no GPU (a shell): what it starts later inherits. Returns the slot.
  Result<uint32_t> attach(ProcessId process, std::string_view tenant);
  // Every process in this cgroup or below it belongs to the tenant, unless it is attached to
  // another one, until end_scope() is called or the tenant goes. For a scope, "NAME.scope", the
  // caller looks whether a process is in it; another cgroup may be empty, or not made yet. Errors:
  // invalid_argument for what is no path below the root; those of Roster::put_scope().
  Result<> attach_scope(const std::string& cgroup, std::string_view tenant);
  void end_scope(const std::string& cgroup);
  std::vector<std::string> scopes() const;
  // Told of every attachment; the default tells nobody. Set it before any.
  void on_attach(std::function<void(ProcessId)> told) { on_attach_ = std::move(told); }
  // The process has ended: it is forgotten, with its attachment and its freeze. A transient tenant
  // goes with its last process.
  void end_process(ProcessId process);
  // The process has nothing on a GPU any more, but may live: its attachment and its freeze stay.
  void leave_gpus(ProcessId process);
  // The same for all: the GPUs are looked for again.
  void leave_all_gpus();
  uint32_t tenant_of(ProcessId process) const;  // kDefaultTenant for an unknown one
  // By the user: of one process, on all GPUs, also on those to which it comes later. Errors:
  // no_space_on_device; invalid_argument for the thaw of a process whose tenant is frozen.
  Result<> set_frozen(ProcessId process, bool is_frozen);
  // Marks the process, which has asked to run a program, as the beginning of a run, and returns its
  // number: all that it starts belongs to that run, as far as it would belong to its tenant. The
  // number is its pid, or the next one that no living process has. `now`: when it asked. Error:
  // no_space_on_device.
  Result<uint32_t> begin_run(ProcessId process, Time now);
  using Run = TenantProcess::Run;
  Run run_of(ProcessId process) const;
  // Whether a process of it is known to live.
  bool has_run(uint32_t number) const { return processes_.has_run(number); }
  bool is_attached(ProcessId process) const;
  // Whether the process itself is frozen by the user; its tenant may be, too.
  bool is_frozen(ProcessId process) const;
  // The processes that are known by attach() or set_frozen() only. Their end is not reported: the
  // agent looks whether they, or processes of their line, still live.
  std::vector<ProcessId> attached_without_gpu() const;
  // Who is attached to a tenant, by the tenant's slot.
  std::vector<std::pair<ProcessId, uint32_t>> attached() const;
  // How many processes of a tenant, by its slot, are in it only until the agent ends, because they
  // inherited that and the roster was full. Empty: none was.
  std::map<uint32_t, uint64_t> driven_out() const;
  // Nobody is attached any more, but for those that are kept; freezes stay. For where the kernel
  // module says who belongs where.
  void drop_attachments(const std::function<bool(const ProcessId&)>& is_kept);

  // Rises whenever the settings of a tenant, or the tenant of a process, may have changed.
  uint64_t generation() const { return generation_; }

 private:
  Result<> take(const TenantsConfig& config, bool does_file_win);
  Result<uint32_t> make_or_change(std::string_view name, std::span<const Setting> changes,
                                  bool create, bool is_transient);
  void drop_tenant(uint32_t slot);
  void detach(ProcessId process);
  uint32_t slot_by_rules(const ProcessIdentity& identity) const;
  void place_by_rules(TenantProcess& process) const;
  void place_all_by_rules();
  void drop_if_over(uint32_t slot);

  Roster* roster_;  // nullptr: none
  TenantTable table_;
  TenantProcesses processes_;
  std::vector<Rule> rules_;
  std::map<std::string, uint32_t> scopes_;  // cgroup to slot
  std::function<void(ProcessId)> on_attach_ = [](ProcessId) {};
  uint64_t generation_ = 1;
};

}  // namespace gpushare
