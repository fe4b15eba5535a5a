// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

std::unexpected<Error> no_such_tenant(std::string_view name) {
  return make_error(std::errc::no_such_file_or_directory, "find tenant",
                    fmt::format("there is no tenant '{}'", name));
}

std::unexpected<Error> no_slot_left() {
  return make_error(std::errc::no_space_on_device, "create tenant",
                    fmt::format("all {} tenants are in use", kMaxTenants));
}

// A later value of the same key replaces the earlier one.
void overlay(std::vector<Setting>& layer, std::span<const Setting> changes) {
  for (const Setting& change : changes) {
    const auto same = std::ranges::find(layer, change.key, &Setting::key);
    if (same == layer.end()) {
      layer.push_back(change);
    } else {
      same->value = change.value;
    }
  }
}

}  // namespace

Tenants::Tenants() : tenants_(kMaxTenants) {
  make_tenant(kDefaultTenant, std::string(kDefaultTenantName));
  tenants_[kDefaultTenant]->is_kept = true;
}

const Tenant* Tenants::at(uint32_t slot) const {
  return slot < tenants_.size() ? tenants_[slot].get() : nullptr;
}

std::optional<uint32_t> Tenants::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<uint32_t> Tenants::slots() const {
  std::vector<uint32_t> used;
  used.reserve(by_name_.size());
  for (const auto& [name, slot] : by_name_) used.push_back(slot);
  std::ranges::sort(used);
  return used;
}

Result<uint32_t> Tenants::set(std::string_view name, std::span<const Setting> changes,
                              bool create) {
  TenantSettings scratch;
  if (auto valid = apply_settings(scratch, changes); !valid) {
    return std::unexpected(valid.error());
  }
  auto slot = find(name);
  if (!slot) {
    if (!create) return no_such_tenant(name);
    if (auto valid = check_tenant_name(name); !valid) return std::unexpected(valid.error());
    slot = free_slot();
    if (!slot) return no_slot_left();
    make_tenant(*slot, std::string(name));
    place_all_by_rules();  // rules may have named the tenant before it was there
  }
  Tenant& tenant = *tenants_[*slot];
  tenant.is_kept = true;
  overlay(tenant.at_run_time, changes);
  recompute(tenant);
  ++generation_;
  return *slot;
}

Result<> Tenants::remove(std::string_view name) {
  const auto slot = find(name);
  if (!slot) return no_such_tenant(name);
  if (*slot == kDefaultTenant) {
    return make_error(std::errc::operation_not_permitted, "remove tenant",
                      "'default' always exists and cannot be removed");
  }
  drop_tenant(*slot);
  return {};
}

Result<uint32_t> Tenants::set_frozen(std::string_view name, bool is_frozen) {
  const auto slot = find(name);
  if (!slot) return no_such_tenant(name);
  tenants_[*slot]->is_frozen_by_user = is_frozen;
  ++generation_;
  return *slot;
}

std::string Tenants::transient_name(ProcessId root) const {
  std::string name = fmt::format("run-{}", root.pid);
  for (int n = 2; find(name); ++n) name = fmt::format("run-{}.{}", root.pid, n);
  return name;
}

Result<uint32_t> Tenants::create_transient(ProcessId root, std::span<const Setting> settings) {
  const std::string name = transient_name(root);
  auto slot = set(name, settings, true);
  if (!slot) return slot;
  mark_transient(*slot);
  return attach(root, name);
}

Result<> Tenants::reload(const TenantsConfig& config) {
  const auto is_new = [this](const TenantConfig& tenant) { return !find(tenant.name); };
  const auto stays = [&config](const Tenant& tenant) {
    return tenant.is_kept || std::ranges::find(config.tenants, tenant.name, &TenantConfig::name) !=
                                 config.tenants.end();
  };
  std::vector<uint32_t> going;
  for (const uint32_t slot : slots()) {
    if (!stays(*tenants_[slot])) going.push_back(slot);
  }
  const auto added = std::ranges::count_if(config.tenants, is_new);
  if (by_name_.size() - going.size() + static_cast<size_t>(added) > kMaxTenants) {
    return no_slot_left();
  }

  for (const uint32_t slot : going) drop_tenant(slot);
  for (const uint32_t slot : slots()) {
    tenants_[slot]->from_file.clear();
    tenants_[slot]->is_in_file = false;
  }
  for (const TenantConfig& written : config.tenants) {
    auto slot = find(written.name);
    if (!slot) slot = free_slot();
    assert(slot);  // counted above
    if (!tenants_[*slot]) make_tenant(*slot, written.name);
    Tenant& tenant = *tenants_[*slot];
    tenant.is_in_file = true;
    tenant.from_file = written.settings;
    std::erase_if(tenant.at_run_time, [&written](const Setting& setting) {
      return std::ranges::find(written.settings, setting.key, &Setting::key) !=
             written.settings.end();
    });
  }
  for (const uint32_t slot : slots()) recompute(*tenants_[slot]);
  rules_ = config.rules;
  place_all_by_rules();
  ++generation_;
  return {};
}

uint32_t Tenants::add_process(ProcessIdentity identity) {
  const auto [place, is_new] = members_.try_emplace(identity.id);
  Member& member = place->second;
  if (const Member* ancestor = is_new ? attached_ancestor(identity) : nullptr) {
    member.is_attached = true;
    member.slot = ancestor->slot;
  }
  member.identity = std::move(identity);
  if (!member.is_attached) place_by_rules(member);
  ++generation_;
  return member.slot;
}

uint32_t Tenants::place_of(const ProcessIdentity& identity) const {
  if (const auto known = members_.find(identity.id); known != members_.end())
    return known->second.slot;
  const Member* ancestor = attached_ancestor(identity);
  return ancestor == nullptr ? slot_by_rules(identity) : ancestor->slot;
}

const Tenants::Member* Tenants::attached_ancestor(const ProcessIdentity& identity) const {
  for (const ProcessId& ancestor : identity.ancestors) {
    const auto found = members_.find(ancestor);
    if (found != members_.end() && found->second.is_attached) return &found->second;
  }
  return nullptr;
}

Result<uint32_t> Tenants::attach(ProcessId process, std::string_view tenant) {
  const auto slot = find(tenant);
  if (!slot) return no_such_tenant(tenant);
  Member& member = members_[process];
  const uint32_t before = member.slot;
  member.is_attached = true;
  member.slot = *slot;
  ++generation_;
  if (before != *slot) drop_if_over(before);
  return *slot;
}

void Tenants::end_process(ProcessId process) {
  const auto found = members_.find(process);
  if (found == members_.end()) return;
  const uint32_t slot = found->second.slot;
  members_.erase(found);
  ++generation_;
  drop_if_over(slot);
}

uint32_t Tenants::tenant_of(ProcessId process) const {
  const auto found = members_.find(process);
  return found == members_.end() ? kDefaultTenant : found->second.slot;
}

std::vector<ProcessId> Tenants::attached_without_gpu() const {
  std::vector<ProcessId> processes;
  for (const auto& [id, member] : members_) {
    if (!member.identity) processes.push_back(id);
  }
  return processes;
}

std::optional<uint32_t> Tenants::free_slot() const {
  const auto found = std::ranges::find_if(tenants_, [](const auto& t) { return !t; });
  if (found == tenants_.end()) return std::nullopt;
  return static_cast<uint32_t>(found - tenants_.begin());
}

void Tenants::make_tenant(uint32_t slot, std::string name) {
  assert(!tenants_[slot]);
  by_name_.emplace(name, slot);
  tenants_[slot] = std::make_unique<Tenant>();
  tenants_[slot]->name = std::move(name);
}

void Tenants::drop_tenant(uint32_t slot) {
  by_name_.erase(tenants_[slot]->name);
  tenants_[slot].reset();
  ++generation_;
  for (auto member = members_.begin(); member != members_.end();) {
    if (member->second.slot != slot) {
      ++member;
    } else if (!member->second.identity) {
      member = members_.erase(member);  // was known only by this attachment
    } else {
      member->second.is_attached = false;
      place_by_rules(member->second);
      ++member;
    }
  }
}

uint32_t Tenants::slot_by_rules(const ProcessIdentity& identity) const {
  for (const Rule& rule : rules_) {
    const auto slot = find(rule.tenant);
    if (slot && rule_matches(rule, identity)) return *slot;
  }
  return kDefaultTenant;
}

void Tenants::place_by_rules(Member& member) const {
  member.slot = member.identity ? slot_by_rules(*member.identity) : kDefaultTenant;
}

void Tenants::place_all_by_rules() {
  for (auto& [id, member] : members_) {
    if (!member.is_attached) place_by_rules(member);
  }
}

void Tenants::drop_if_over(uint32_t slot) {
  if (!tenants_[slot] || !tenants_[slot]->is_transient) return;
  const bool has_member = std::ranges::any_of(
      members_, [slot](const auto& member) { return member.second.slot == slot; });
  if (!has_member) drop_tenant(slot);
}

void Tenants::recompute(Tenant& tenant) {
  tenant.settings = {};
  // Both layers were checked when they came in.
  for (const auto* layer : {&tenant.from_file, &tenant.at_run_time}) {
    const auto applied = apply_settings(tenant.settings, *layer);
    assert(applied);
    (void)applied;
  }
}

}  // namespace gpushare
