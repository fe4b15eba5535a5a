// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenant_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "sched/tenants/tenant_records.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

std::unexpected<Error> no_slot_left() {
  return make_error(std::errc::no_space_on_device, "create tenant",
                    fmt::format("all {} tenants are in use", kMaxTenants));
}

std::optional<Cap> Tenant::cap_on(uint32_t gpu) const {
  std::optional<Cap> least;
  const auto take = [&](const Cap& cap) {
    if (cap.binds() && (!least || cap.fraction() < least->fraction())) least = cap;
  };
  if (settings.cap) take(*settings.cap);
  if (const auto own = gpu_caps.find(gpu); own != gpu_caps.end()) take(own->second);
  return least;
}

void overlay(std::vector<Setting>& layer, std::span<const Setting> changes) {
  for (const Setting& change : changes) {
    const auto same = std::ranges::find(layer, change.key, &Setting::key);
    if (same == layer.end())
      layer.push_back(change);
    else
      same->value = change.value;
  }
}

TenantTable::TenantTable(Roster* roster) : roster_(roster), tenants_(kMaxTenants) {
  if (roster_ != nullptr) take_over();
  if (tenants_[kDefaultTenant]) return;
  Tenant usual;
  usual.name = kDefaultTenantName;
  usual.is_kept = true;
  make(kDefaultTenant, std::move(usual));
}

// Nothing is written but what must go.
void TenantTable::take_over() {
  roster_->for_each_tenant([this](uint32_t slot, const RosterTenant& record) {
    auto tenant = tenant_from(record);
    const bool has_own_name = tenant &&
                              (tenant->name == kDefaultTenantName) == (slot == kDefaultTenant) &&
                              !find(tenant->name);
    if (has_own_name) return make(slot, std::move(*tenant));
    log_warning("tenant '{}' of the agent before is lost: {}", record.name,
                tenant ? "its name is another's" : tenant.error().message());
    roster_->erase_tenant(slot);
  });
}

void TenantTable::note(uint32_t slot) {
  if (roster_ != nullptr) roster_->put_tenant(slot, roster_record(*tenants_[slot]));
}

const Tenant* TenantTable::at(uint32_t slot) const {
  return slot < tenants_.size() ? tenants_[slot].get() : nullptr;
}

std::optional<uint32_t> TenantTable::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

// In the order of names those below "a" come from "a/" on, one behind the other.
bool TenantTable::has_below(std::string_view name) const {
  const std::string path = std::string(name) + '/';
  const auto below = by_name_.lower_bound(path);
  return below != by_name_.end() && below->first.starts_with(path);
}

std::optional<uint32_t> TenantTable::free_slot() const {
  for (uint32_t slot = 0; slot < tenants_.size(); ++slot)
    if (!tenants_[slot] && !resting_.contains(slot)) return slot;
  if (resting_.empty()) return std::nullopt;
  return *resting_.begin();
}

void TenantTable::make(uint32_t slot, Tenant tenant) {
  assert(!tenants_[slot]);
  by_name_.emplace(tenant.name, slot);
  slots_.insert(std::ranges::lower_bound(slots_, slot), slot);
  tenants_[slot] = std::make_unique<Tenant>(std::move(tenant));
  resting_.erase(slot);
  note(slot);
  recompute(*tenants_[slot]);
}

void TenantTable::unname(uint32_t slot) {
  by_name_.erase(tenants_[slot]->name);
  std::erase(slots_, slot);
  bind(tenants_[slot]->name);
}

void TenantTable::erase(uint32_t slot) {
  if (roster_ != nullptr) roster_->erase_tenant(slot);
  tenants_[slot].reset();
  resting_.insert(slot);
}

void TenantTable::change(uint32_t slot, std::span<const Setting> changes) {
  Tenant& tenant = *tenants_[slot];
  tenant.is_kept = true;
  overlay(tenant.at_run_time, changes);
  note(slot);
  recompute(tenant);
}

void TenantTable::forget_changes(uint32_t slot) {
  Tenant& tenant = *tenants_[slot];
  tenant.at_run_time.clear();
  tenant.is_kept = slot == kDefaultTenant;
  note(slot);
  recompute(tenant);
}

void TenantTable::set_frozen(uint32_t slot, bool is_frozen) {
  tenants_[slot]->is_frozen_by_user = is_frozen;
  note(slot);
  bind(tenants_[slot]->name);
}

void TenantTable::set_gpu_caps(uint32_t slot, std::map<uint32_t, Cap> caps) {
  tenants_[slot]->gpu_caps = std::move(caps);
}

void TenantTable::mark_transient(uint32_t slot) {
  tenants_[slot]->is_transient = true;
  note(slot);
}

Result<std::vector<uint32_t>> TenantTable::going_with(const TenantsConfig& config) const {
  std::vector<uint32_t> going;
  for (const uint32_t slot : slots_)
    if (!tenants_[slot]->is_kept && std::ranges::find(config.tenants, tenants_[slot]->name,
                                                      &TenantConfig::name) == config.tenants.end())
      going.push_back(slot);
  // Who stays keeps those above it.
  for (const auto& [name, slot] : by_name_) {
    if (std::ranges::binary_search(going, slot)) continue;
    for (const uint32_t above : tenants_[slot]->above) std::erase(going, above);
  }
  const auto added = std::ranges::count_if(
      config.tenants, [this](const TenantConfig& tenant) { return !find(tenant.name); });
  if (by_name_.size() - going.size() + static_cast<size_t>(added) > kMaxTenants)
    return no_slot_left();
  return going;
}

void TenantTable::take(const TenantsConfig& config, bool does_file_win) {
  for (const uint32_t slot : slots_) {
    tenants_[slot]->from_file.clear();
    tenants_[slot]->is_in_file = false;
  }
  for (const TenantConfig& written : config.tenants) {
    auto slot = find(written.name);
    if (!slot) {
      slot = free_slot();
      assert(slot);  // counted by going_with()
      Tenant made;
      made.name = written.name;
      make(*slot, std::move(made));
    }
    Tenant& tenant = *tenants_[*slot];
    tenant.is_in_file = true;
    tenant.from_file = written.settings;
    if (!does_file_win) continue;
    std::erase_if(tenant.at_run_time, [&written](const Setting& setting) {
      return std::ranges::find(written.settings, setting.key, &Setting::key) !=
             written.settings.end();
    });
    note(*slot);
  }
  for (const uint32_t slot : slots_) recompute(*tenants_[slot]);
}

void TenantTable::recompute(Tenant& tenant) {
  tenant.settings = {};
  // Both layers were checked when they came in.
  for (const auto* layer : {&tenant.from_file, &tenant.at_run_time}) {
    const auto applied = apply_settings(tenant.settings, *layer);
    assert(applied);
    (void)applied;
  }
  bind(tenant.name);
}

// Makes anew what holds for the tenant of this name, if it is there, and for all below it.
void TenantTable::bind(const std::string& name) {
  const auto bind_one = [this](Tenant& tenant) {
    tenant.above.clear();
    tenant.priority = tenant.settings.priority;
    tenant.is_frozen = tenant.is_frozen_by_user;
    for (auto path = name_above(tenant.name); !path.empty(); path = name_above(path)) {
      const auto slot = find(path);
      if (!slot) continue;
      const Tenant& one = *tenants_[*slot];
      tenant.above.push_back(*slot);
      tenant.priority = std::min(tenant.priority, one.settings.priority);
      tenant.is_frozen = tenant.is_frozen || one.is_frozen_by_user;
    }
  };
  if (const auto slot = find(name)) bind_one(*tenants_[*slot]);
  const std::string path = name + '/';
  for (auto below = by_name_.lower_bound(path);
       below != by_name_.end() && below->first.starts_with(path); ++below)
    bind_one(*tenants_[below->second]);
}

}  // namespace gpushare
