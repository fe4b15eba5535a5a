// SPDX-License-Identifier: Apache-2.0
// Tenants: the set of tenants, their settings, and which process is in which. In memory only, no
// I/O, one thread (the agent's). A slot is an index of the control plane's tenant table: stable
// while the tenant lives, reused after it is gone. `default` is always in slot 0.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/tenants/config.h"
#include "sched/tenants/rules.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

inline constexpr uint32_t kDefaultTenant = 0;
inline constexpr std::string_view kDefaultTenantName = "default";

struct Tenant {
  std::string name;
  TenantSettings settings;           // what holds now: the defaults under these two layers
  std::vector<Setting> from_file;    // of the configuration
  std::vector<Setting> at_run_time;  // by set()
  bool is_in_file = false;
  bool is_kept = false;       // made or changed at run time: stays when the file names it no longer
  bool is_transient = false;  // goes with its last process
  bool is_frozen_by_user = false;
};

// A process belongs to the tenant to which it or its nearest attached ancestor was attached;
// otherwise to that of the first rule that holds; otherwise to `default`. Inheritance is looked up
// once, when the process is first seen, and stays after the ancestor has ended. A process whose
// chain of ancestors broke before (by a daemon's double fork) inherits nothing: a rule by cgroup is
// for those.
//
// The settings of a tenant are the defaults, overlaid by the file, overlaid by what was set at run
// time. On reload the file wins for every key that it names, and the rest of what was set at run
// time stays:
//   file   [tenant.a] weight=300        set a weight=500 max=30%      -> 500, 30%
//   reload [tenant.a] weight=200                                      -> 200, 30%
//   reload (no tenant.a any more)                                     -> 100, 30%
// A tenant that only the file made goes when the file no longer names it; one that was made or
// changed at run time stays until it is removed.
class Tenants {
 public:
  Tenants();

  // --- tenants. Errors say what was wrong and leave everything as it was; a name that is not known
  // is no_such_file_or_directory.
  const Tenant* at(uint32_t slot) const;  // nullptr: the slot is free
  std::optional<uint32_t> find(std::string_view name) const;
  std::vector<uint32_t> slots() const;  // those in use, ascending

  // Applies all changes or none, and returns the slot. `create`: makes the tenant if it is not
  // there. Errors also: invalid_argument; no_space_on_device when all slots are in use.
  Result<uint32_t> set(std::string_view name, std::span<const Setting> changes, bool create);
  // The tenant's processes go where the rules say. A tenant that the file names is made again by
  // the next reload. Error for `default`: operation_not_permitted.
  Result<> remove(std::string_view name);
  // By the user. Returns the slot.
  Result<uint32_t> set_frozen(std::string_view name, bool is_frozen);
  // Makes a tenant for `root` alone and its future children, attaches `root`, and returns the slot.
  // Its name is `run-PID`, or `run-PID.2` and so on when that is taken (by a run around this one,
  // or because the pid was used before).
  Result<uint32_t> create_transient(ProcessId root, std::span<const Setting> settings);
  // The name that create_transient() would give.
  std::string transient_name(ProcessId root) const;
  // From now on the tenant goes with its last process. REQUIRES: `slot` is in use.
  void mark_transient(uint32_t slot) { tenants_[slot]->is_transient = true; }
  // Takes over a new configuration as said above. Error: no_space_on_device, and nothing else.
  Result<> reload(const TenantsConfig& config);

  // --- processes.
  // Adds a process that the agent sees on a GPU, and returns its tenant's slot. A further call with
  // the same id replaces what is known of it (after exec, or in another cgroup); an attachment
  // stays.
  uint32_t add_process(ProcessIdentity identity);
  // The slot that add_process() would return.
  uint32_t place_of(const ProcessIdentity& identity) const;
  // `process` may be on no GPU (a shell): what it starts later inherits. Returns the slot.
  Result<uint32_t> attach(ProcessId process, std::string_view tenant);
  // Forgets the process and its attachment. A transient tenant goes with its last process.
  void end_process(ProcessId process);
  uint32_t tenant_of(ProcessId process) const;  // kDefaultTenant for an unknown one
  // The processes that are known by attach() only. Their end is not reported: the agent looks
  // whether they still live.
  std::vector<ProcessId> attached_without_gpu() const;

  // Rises whenever the settings of a tenant, or the tenant of a process, may have changed.
  uint64_t generation() const { return generation_; }

 private:
  struct Member {
    std::optional<ProcessIdentity> identity;  // none: known by attach() only
    bool is_attached = false;                 // explicitly, or inherited at first sight
    uint32_t slot = kDefaultTenant;
  };

  std::optional<uint32_t> free_slot() const;
  void make_tenant(uint32_t slot, std::string name);
  void drop_tenant(uint32_t slot);
  const Member* attached_ancestor(const ProcessIdentity& identity) const;
  uint32_t slot_by_rules(const ProcessIdentity& identity) const;
  void place_by_rules(Member& member) const;
  void place_all_by_rules();
  void drop_if_over(uint32_t slot);
  static void recompute(Tenant& tenant);

  std::vector<std::unique_ptr<Tenant>> tenants_;  // by slot; nullptr: free
  std::map<std::string, uint32_t, std::less<>> by_name_;
  std::vector<Rule> rules_;
  std::map<ProcessId, Member> members_;
  uint64_t generation_ = 0;
};

}  // namespace gpushare
