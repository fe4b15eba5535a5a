// SPDX-License-Identifier: Apache-2.0
// The set of tenants: their settings, and who is in which. In memory only, no I/O, one thread (the
// agent's). Slots are the indices of the control plane's tenant table: stable while a tenant lives,
// reused after it is gone; `default` is slot 0 for ever.
//
// A process belongs to the tenant that it or its nearest attached ancestor was attached to; else to
// that of the first rule that holds; else to `default`. Inheritance is looked up once, when the
// process is first seen, and kept after the ancestor ended. A process whose ancestor chain broke
// before (a daemon's double fork) inherits nothing: use a cgroup rule for those.
//
// What a setting is worth: defaults, overlaid by the file, overlaid by what was set at run time. On
// reload the file wins for every key that it names, and the rest of what was set at run time stays:
//   file   [tenant.a] weight=300        set a weight=500 max=30%      -> 500, 30%
//   reload [tenant.a] weight=200                                      -> 200, 30%
//   reload (no tenant.a any more)                                     -> 100, 30%
// A tenant that only the file made goes when the file no longer names it; one that was made or
// changed at run time stays until it is removed. Transient tenants go with their last process.
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
  TenantSettings settings;         // what holds now
  std::vector<Setting> from_file;  // the two layers it is made of
  std::vector<Setting> at_run_time;
  bool is_in_file = false;
  bool is_kept = false;  // made or changed at run time: outlives the file's line
  bool is_transient = false;
  bool is_frozen_by_user = false;
};

class Tenants {
 public:
  Tenants();

  // --- tenants. Errors name what was wrong and leave everything as it was.
  const Tenant* at(uint32_t slot) const;  // nullptr: free slot
  std::optional<uint32_t> find(std::string_view name) const;
  std::vector<uint32_t> slots() const;  // in use, ascending

  // Sets all or nothing. An unknown name is an error (no_such_file_or_directory) unless `create`.
  Result<uint32_t> set(std::string_view name, std::span<const Setting> changes, bool create);
  // Its processes fall to the rules and `default`; the file's line makes it again on the next
  // reload.
  Result<> remove(std::string_view name);
  Result<uint32_t> set_frozen(std::string_view name, bool is_frozen);
  // Makes a tenant `run-PID` (`run-PID.2`, ... when that is taken: one run inside another, or a pid
  // used again) for `root` alone and its future children, and attaches `root`.
  Result<uint32_t> create_transient(ProcessId root, std::span<const Setting> settings);
  // The name that create_transient() would give.
  std::string transient_name(ProcessId root) const;
  // It goes with its last process from now on. `slot` is in use.
  void mark_transient(uint32_t slot) { tenants_[slot]->is_transient = true; }
  // Takes over a new configuration as said above. Fails only when the slots do not suffice.
  Result<> reload(const Config& config);

  // --- processes.
  // Everything the agent sees on a GPU; returns its slot. Again with the same id: replaces the
  // facts (after exec, or a move to another cgroup), keeps an attachment.
  uint32_t add_process(ProcessFacts facts);
  // Where it would be if it were added now.
  uint32_t place_of(const ProcessFacts& facts) const;
  // Also one that is on no GPU (a shell): what it starts later inherits.
  Result<uint32_t> attach(ProcessId process, std::string_view tenant);
  // Forgets it and its attachment; the last one of a transient tenant takes the tenant along.
  void end_process(ProcessId process);
  uint32_t tenant_of(ProcessId process) const;  // kDefaultTenant for one that is not known
  // Known by attach() only. Nobody reports their end: the agent looks whether they still live.
  std::vector<ProcessId> attached_without_gpu() const;

  // Rises whenever any tenant's settings or any process's tenant may have changed.
  uint64_t generation() const { return generation_; }

 private:
  struct Member {
    std::optional<ProcessFacts> facts;  // none: known by attach() only
    bool is_attached = false;           // explicitly, or inherited at first sight
    uint32_t slot = kDefaultTenant;
  };

  std::optional<uint32_t> free_slot() const;
  void make_tenant(uint32_t slot, std::string name);
  void drop_tenant(uint32_t slot);
  const Member* attached_ancestor(const ProcessFacts& facts) const;
  uint32_t slot_by_rules(const ProcessFacts& facts) const;
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
