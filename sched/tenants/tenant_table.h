// SPDX-License-Identifier: Apache-2.0
// TenantTable: the tenants by slot and by name, with the layers of their settings, the tree that
// their names make ("team" is above "team/job"), and their part of the roster. It knows no
// processes: who is in which tenant is said by Tenants (tenants.h), whose thread is the only one
// here. A slot is an index of the control plane's tenant table.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/tenants/config.h"
#include "shmctl/plane/roster.h"
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
  // Of single GPUs, besides settings.cap. Only the kernel module keeps them, not this.
  std::map<uint32_t, Cap> gpu_caps{};

  // What holds with those above it in the tree, as TenantTable keeps it. A weight divides what the
  // one right above has, and a cap of one above is a cap of all below it together.
  std::vector<uint32_t> above{};          // their slots, the nearest first
  Priority priority = Priority::kNormal;  // the lowest of its own and theirs
  bool is_frozen = false;                 // by the user: itself, or one above it

  // The slot of the one at the top of the tree that `own` is in; `own`: it is that one.
  uint32_t top(uint32_t own) const { return above.empty() ? own : above.back(); }
  // The cap on a GPU: of those that bind the one with the lesser part of the GPU's time.
  std::optional<Cap> cap_on(uint32_t gpu) const;
};

class TenantTable {
 public:
  // Takes over the tenants that `roster` has (nullptr: none, and nothing is written); what cannot
  // be taken over is logged and dropped. `default` is there from then on.
  explicit TenantTable(Roster* roster);

  const Tenant* at(uint32_t slot) const;  // nullptr: the slot is free
  std::optional<uint32_t> find(std::string_view name) const;
  bool has_below(std::string_view name) const;  // tenants below this one in the tree
  const std::vector<uint32_t>& slots() const { return slots_; }  // those in use, ascending
  // The slot for the next tenant: one that was used before only where there is no other.
  std::optional<uint32_t> free_slot() const;
  void reuse_slots() { resting_.clear(); }

  // REQUIRES: the slot is free, and no tenant has the name.
  void make(uint32_t slot, Tenant tenant);
  // Neither its name nor slots() leads to the tenant any more, but it is still there; erase()
  // follows. REQUIRES, of this and all that follows: the slot is in use.
  void unname(uint32_t slot);
  void erase(uint32_t slot);
  // Lays `changes`, which were checked, over what was set at run time. The tenant stays from now
  // on, also when the file does not name it.
  void change(uint32_t slot, std::span<const Setting> changes);
  // Drops what was set at run time; only `default` stays when the file does not name it.
  void forget_changes(uint32_t slot);
  void set_frozen(uint32_t slot, bool is_frozen);
  // It is in no roster: whoever keeps them says them again.
  void set_gpu_caps(uint32_t slot, std::map<uint32_t, Cap> caps);
  void mark_transient(uint32_t slot);

  // The tenants that go when a configuration is taken, as it does not name them and nobody else
  // has. Error: no_space_on_device when the others and those that it names are too many.
  Result<std::vector<uint32_t>> going_with(const TenantsConfig& config) const;
  // Makes and changes tenants as it says. REQUIRES: those of going_with() are gone.
  void take(const TenantsConfig& config, bool does_file_win);

 private:
  void take_over();
  void note(uint32_t slot);
  void recompute(Tenant& tenant);
  void bind(const std::string& name);

  Roster* roster_;
  std::vector<std::unique_ptr<Tenant>> tenants_;  // by slot; nullptr: free
  std::vector<uint32_t> slots_;                   // in use, ascending
  std::set<uint32_t> resting_;                    // free, and not to be used if another is
  std::map<std::string, uint32_t, std::less<>> by_name_;
};

// A later value of the same key replaces the earlier one.
void overlay(std::vector<Setting>& layer, std::span<const Setting> changes);

// What is said when all slots are in use.
std::unexpected<Error> no_slot_left();

}  // namespace gpushare
