// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "sched/tenants/tenant_records.h"
#include "shmctl/base/log.h"
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

Tenants::Tenants(Roster* roster) : roster_(roster), tenants_(kMaxTenants) {
  if (roster_ != nullptr) take_over();
  if (tenants_[kDefaultTenant]) return;
  Tenant usual;
  usual.name = kDefaultTenantName;
  usual.is_kept = true;
  make_tenant(kDefaultTenant, std::move(usual));
}

// Nothing is written but what must go.
void Tenants::take_over() {
  roster_->for_each_tenant([this](uint32_t slot, const RosterTenant& record) {
    auto tenant = tenant_from(record);
    const bool has_own_name = tenant &&
                              (tenant->name == kDefaultTenantName) == (slot == kDefaultTenant) &&
                              !find(tenant->name);
    if (has_own_name) return make_tenant(slot, std::move(*tenant));
    log_warning("tenant '{}' of the agent before is lost: {}", record.name,
                tenant ? "its name is another's" : tenant.error().message());
    roster_->erase_tenant(slot);
  });
  roster_->for_each_process([this](const RosterProcess& record) {
    const ProcessId process{record.pid, record.start_ticks};
    Member member;
    member.is_frozen = (record.flags & kRosterFrozen) != 0;
    member.is_attached = (record.flags & kRosterAttached) != 0;
    if (member.is_attached && at(record.tenant) == nullptr) {
      log_warning("process {} is not in its tenant any more, which is lost", process.pid);
      member.is_attached = false;
    }
    if (member.is_attached) member.slot = record.tenant;
    member.is_heir = member.is_attached && (record.flags & kRosterInherited) != 0;
    member.is_run_heir = !member.is_attached && (record.flags & kRosterInherited) != 0;
    member.run.number = record.run;
    if (member.is_noted()) members_.emplace(process, member);
    note_or_warn(process, member);
  });
  roster_->for_each_scope([this](const std::string& cgroup, uint32_t slot) {
    if (at(slot) != nullptr) {
      scopes_.emplace(cgroup, slot);
      return;
    }
    log_warning("what is in {} is not in its tenant any more, which is lost", cgroup);
    roster_->erase_scope(cgroup);
  });
}

void Tenants::note(uint32_t slot) {
  if (roster_ != nullptr) roster_->put_tenant(slot, roster_record(*tenants_[slot]));
}

Result<> Tenants::note(ProcessId process, const Member& member) {
  if (roster_ == nullptr) return {};
  const bool is_inherited = member.is_attached ? member.is_heir : member.is_run_heir;
  return roster_->put_process(
      {.pid = process.pid,
       .tenant = member.is_attached ? member.slot : kDefaultTenant,
       .start_ticks = process.start_ticks,
       .flags = (member.is_attached ? kRosterAttached : 0) | (is_inherited ? kRosterInherited : 0) |
                (member.is_frozen ? kRosterFrozen : 0) | (member.run.number != 0 ? kRosterRun : 0),
       .run = member.run.number});
}

void Tenants::note_or_warn(ProcessId process, const Member& member) {
  const auto noted = note(process, member);
  if (noted && roster_ != nullptr && !roster_->driven_out().empty() &&
      !std::exchange(has_warned_driven_out_, true))
    log_warning(
        "all {} entries for processes are taken; 'gpushare doctor' says whose processes "
        "belong to their tenant only until the agent ends",
        kMaxRosterProcesses);
  if (noted || std::exchange(has_warned_full_, true)) return;
  log_warning("process {} and others belong to their tenants only until the agent ends: {}",
              process.pid, noted.error().message());
}

const Tenant* Tenants::at(uint32_t slot) const {
  return slot < tenants_.size() ? tenants_[slot].get() : nullptr;
}

std::optional<uint32_t> Tenants::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

Result<uint32_t> Tenants::set(std::string_view name, std::span<const Setting> changes,
                              bool create) {
  return make_or_change(name, changes, create, /*is_transient=*/false);
}

// A transient tenant is never in the roster as one that stays.
Result<uint32_t> Tenants::make_or_change(std::string_view name, std::span<const Setting> changes,
                                         bool create, bool is_transient) {
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
    Tenant made;
    made.name = name;
    made.is_kept = true;
    made.is_transient = is_transient;
    overlay(made.at_run_time, changes);
    make_tenant(*slot, std::move(made));
    // Rules may have named the tenant before it was there.
    if (std::ranges::find(rules_, name, &Rule::tenant) != rules_.end()) place_all_by_rules();
    return *slot;
  }
  Tenant& tenant = *tenants_[*slot];
  tenant.is_kept = true;
  overlay(tenant.at_run_time, changes);
  note(*slot);
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
  note(*slot);
  ++generation_;
  return *slot;
}

void Tenants::thaw_all() {
  for (auto member = members_.begin(); member != members_.end();) {
    member->second.is_frozen = false;
    note_or_warn(member->first, member->second);
    const bool is_over = !member->second.identity && !member->second.is_noted();
    member = is_over ? members_.erase(member) : std::next(member);
  }
  for (const uint32_t slot : slots()) {
    tenants_[slot]->is_frozen_by_user = false;
    note(slot);
  }
  ++generation_;
}

void Tenants::forget() {
  thaw_all();
  for (const uint32_t slot : slots()) {
    Tenant& tenant = *tenants_[slot];
    if (!tenant.is_in_file && slot != kDefaultTenant) {
      drop_tenant(slot);
      continue;
    }
    tenant.at_run_time.clear();
    tenant.is_kept = slot == kDefaultTenant;
    note(slot);
    recompute(tenant);
  }
  ++generation_;
}

std::string Tenants::transient_name(ProcessId root) const {
  std::string name = fmt::format("run-{}", root.pid);
  for (int n = 2; find(name); ++n) name = fmt::format("run-{}.{}", root.pid, n);
  return name;
}

Result<uint32_t> Tenants::create_transient(ProcessId root, std::span<const Setting> settings) {
  const std::string name = transient_name(root);
  auto slot = make_or_change(name, settings, /*create=*/true, /*is_transient=*/true);
  if (!slot) return slot;
  auto attached = attach(root, name);
  if (!attached) drop_tenant(*slot);
  return attached;
}

void Tenants::mark_transient(uint32_t slot) {
  tenants_[slot]->is_transient = true;
  note(slot);
}

void Tenants::drop_the_finished() {
  for (const uint32_t slot : slots()) drop_if_over(slot);
}

Result<> Tenants::take(const TenantsConfig& config, bool does_file_win) {
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
    if (!slot) {
      slot = free_slot();
      assert(slot);  // counted above
      Tenant made;
      made.name = written.name;
      make_tenant(*slot, std::move(made));
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
  for (const uint32_t slot : slots()) recompute(*tenants_[slot]);
  rules_ = config.rules;
  place_all_by_rules();
  ++generation_;
  return {};
}

uint32_t Tenants::add_process(ProcessIdentity identity) {
  Member& member = members_[identity.id];
  const bool is_first = !member.identity && !member.is_attached;
  if (const Member* ancestor = is_first ? attached_ancestor(identity) : nullptr) {
    member.is_attached = member.is_heir = true;
    member.slot = ancestor->slot;
  }
  if (!member.identity && member.run.number == 0) {
    member.run = inherited_run(identity);
    member.is_run_heir = member.run.number != 0;
  }
  note_or_warn(identity.id, member);
  member.identity = std::move(identity);
  if (!member.is_attached) place_by_rules(member);
  ++generation_;
  return member.slot;
}

uint32_t Tenants::place_of(const ProcessIdentity& identity) const {
  const auto known = members_.find(identity.id);
  if (known != members_.end() && (known->second.identity || known->second.is_attached))
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

Tenants::Run Tenants::inherited_run(const ProcessIdentity& identity) const {
  for (const ProcessId& ancestor : identity.ancestors) {
    const auto found = members_.find(ancestor);
    if (found != members_.end() && found->second.run.number != 0) return found->second.run;
  }
  return {};
}

Result<uint32_t> Tenants::begin_run(ProcessId process, Time now) {
  const auto is_taken = [&](uint32_t number) {
    return std::ranges::any_of(
        members_, [&](const auto& entry) { return entry.second.run.number == number; });
  };
  constexpr uint32_t kPids = 1U << 22;  // the kernel gives no larger ones
  auto number = static_cast<uint32_t>(process.pid);
  while (is_taken(number)) number += kPids;
  const auto known = members_.find(process);
  Member member = known == members_.end() ? Member{} : known->second;
  member.run = {.number = number, .asked = now};
  member.is_run_heir = false;
  if (auto noted = note(process, member); !noted) return std::unexpected(noted.error());
  members_[process] = std::move(member);
  ++generation_;
  on_attach_(process);
  return number;
}

Tenants::Run Tenants::run_of(ProcessId process) const {
  const auto found = members_.find(process);
  return found == members_.end() ? Run{} : found->second.run;
}

Result<uint32_t> Tenants::attach(ProcessId process, std::string_view tenant) {
  const auto slot = find(tenant);
  if (!slot) return no_such_tenant(tenant);
  const auto known = members_.find(process);
  Member member = known == members_.end() ? Member{} : known->second;
  const uint32_t before = member.slot;
  member.is_attached = true;
  member.is_heir = false;
  member.slot = *slot;
  if (auto noted = note(process, member); !noted) return std::unexpected(noted.error());
  members_[process] = std::move(member);
  ++generation_;
  if (before != *slot) drop_if_over(before);
  on_attach_(process);
  return *slot;
}

Result<> Tenants::attach_scope(const std::string& cgroup, std::string_view tenant) {
  const auto slot = find(tenant);
  if (!slot) return no_such_tenant(tenant);
  if (roster_ != nullptr)
    if (auto noted = roster_->put_scope(cgroup, *slot); !noted) return noted;
  scopes_[cgroup] = *slot;
  place_all_by_rules();
  ++generation_;
  return {};
}

void Tenants::end_scope(const std::string& cgroup) {
  const auto ended = scopes_.extract(cgroup);
  if (roster_ != nullptr) roster_->erase_scope(cgroup);
  if (ended) drop_if_over(ended.mapped());
}

std::vector<std::string> Tenants::scopes() const {
  std::vector<std::string> all;
  all.reserve(scopes_.size());
  for (const auto& [cgroup, slot] : scopes_) all.push_back(cgroup);
  return all;
}

void Tenants::end_process(ProcessId process) {
  const auto found = members_.find(process);
  if (found == members_.end()) return;
  const uint32_t slot = found->second.slot;
  if (roster_ != nullptr) roster_->erase_process(process);
  members_.erase(found);
  ++generation_;
  drop_if_over(slot);
}

void Tenants::leave_gpus(ProcessId process) {
  const auto found = members_.find(process);
  if (found == members_.end()) return;
  if (!found->second.is_noted()) return end_process(process);
  found->second.identity.reset();
  if (!found->second.is_attached) found->second.slot = kDefaultTenant;
  ++generation_;
}

void Tenants::leave_all_gpus() {
  std::vector<ProcessId> all;
  for (const auto& [process, member] : members_)
    if (member.identity) all.push_back(process);
  for (const ProcessId& process : all) leave_gpus(process);
}

Result<> Tenants::set_frozen(ProcessId process, bool is_frozen) {
  const Tenant& tenant = *tenants_[tenant_of(process)];
  if (!is_frozen && tenant.is_frozen_by_user)
    return make_error(std::errc::invalid_argument, "thaw a process",
                      fmt::format("process {} is frozen with its tenant '{}': thaw the tenant "
                                  "(gpushare thaw {}), or move the process to another one",
                                  process.pid, tenant.name, tenant.name));
  const auto known = members_.find(process);
  Member member = known == members_.end() ? Member{} : known->second;
  if (member.is_frozen == is_frozen) return {};
  member.is_frozen = is_frozen;
  if (auto noted = note(process, member); !noted) return noted;
  if (member.identity || member.is_noted())
    members_[process] = std::move(member);
  else
    members_.erase(process);
  ++generation_;
  return {};
}

bool Tenants::is_frozen(ProcessId process) const {
  const auto found = members_.find(process);
  return found != members_.end() && found->second.is_frozen;
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

std::vector<std::pair<ProcessId, uint32_t>> Tenants::attached() const {
  std::vector<std::pair<ProcessId, uint32_t>> processes;
  for (const auto& [id, member] : members_)
    if (member.is_attached) processes.emplace_back(id, member.slot);
  return processes;
}

std::map<uint32_t, uint64_t> Tenants::driven_out() const {
  return roster_ == nullptr ? std::map<uint32_t, uint64_t>{} : roster_->driven_out();
}

void Tenants::drop_attachments() {
  for (const auto& [process, slot] : attached()) detach(process, members_.at(process));
  ++generation_;
}

// What was known of the process only by its attachment is forgotten.
void Tenants::detach(ProcessId process, Member& member) {
  member.is_attached = member.is_heir = false;
  note_or_warn(process, member);
  place_by_rules(member);
  if (!member.identity && !member.is_noted()) members_.erase(process);
}

std::optional<uint32_t> Tenants::free_slot() const {
  for (uint32_t slot = 0; slot < tenants_.size(); ++slot)
    if (!tenants_[slot] && !resting_.contains(slot)) return slot;
  if (resting_.empty()) return std::nullopt;
  return *resting_.begin();
}

void Tenants::make_tenant(uint32_t slot, Tenant tenant) {
  assert(!tenants_[slot]);
  by_name_.emplace(tenant.name, slot);
  slots_.insert(std::ranges::lower_bound(slots_, slot), slot);
  tenants_[slot] = std::make_unique<Tenant>(std::move(tenant));
  resting_.erase(slot);
  note(slot);
  recompute(*tenants_[slot]);
  ++generation_;
}

// In the roster its processes and scopes leave before it goes, so that none is ever in the next
// tenant there.
void Tenants::drop_tenant(uint32_t slot) {
  by_name_.erase(tenants_[slot]->name);
  std::erase(slots_, slot);
  std::vector<ProcessId> attached_here;
  for (auto& [process, member] : members_)
    if (member.slot == slot) attached_here.push_back(process);
  for (const ProcessId& process : attached_here) detach(process, members_.at(process));
  std::erase_if(scopes_, [&](const auto& scope) {
    if (scope.second == slot && roster_ != nullptr) roster_->erase_scope(scope.first);
    return scope.second == slot;
  });
  if (roster_ != nullptr) roster_->erase_tenant(slot);
  tenants_[slot].reset();
  resting_.insert(slot);
  ++generation_;
}

uint32_t Tenants::slot_by_rules(const ProcessIdentity& identity) const {
  for (const auto& [cgroup, slot] : scopes_)
    if ((identity.cgroup_path + "/").starts_with(cgroup + "/")) return slot;
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
  const auto has_slot = [slot](const auto& member) { return member.second.slot == slot; };
  const bool has_scope =
      std::ranges::any_of(scopes_, [slot](const auto& scope) { return scope.second == slot; });
  if (!has_scope && std::ranges::none_of(members_, has_slot)) drop_tenant(slot);
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
