// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

std::unexpected<Error> no_such_tenant(std::string_view name) {
  return make_error(std::errc::no_such_file_or_directory, "find tenant",
                    fmt::format("there is no tenant '{}'", name));
}

// "/a/b": no part is empty, "." or "..", so that it is written in one way only.
bool is_below_root(std::string_view cgroup) {
  if (cgroup.size() < 2 || cgroup.find('\0') != std::string_view::npos) return false;
  while (!cgroup.empty()) {
    if (cgroup.front() != '/') return false;
    cgroup.remove_prefix(1);
    const std::string_view part = cgroup.substr(0, cgroup.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    cgroup.remove_prefix(part.size());
  }
  return true;
}

}  // namespace

Tenants::Tenants(Roster* roster)
    : roster_(roster),
      table_(roster),
      processes_(roster, [this](uint32_t slot) { return at(slot) != nullptr; }) {
  if (roster_ == nullptr) return;
  roster_->for_each_scope([this](const std::string& cgroup, uint32_t slot) {
    if (at(slot) != nullptr) {
      scopes_.emplace(cgroup, slot);
      return;
    }
    log_warning("what is in {} is not in its tenant any more, which is lost", cgroup);
    roster_->erase_scope(cgroup);
  });
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
    const std::string_view above = name_above(name);
    if (!above.empty() && !find(above)) return no_such_tenant(above);
    slot = table_.free_slot();
    if (!slot) return no_slot_left();
    Tenant made;
    made.name = name;
    made.is_kept = true;
    made.is_transient = is_transient;
    overlay(made.at_run_time, changes);
    table_.make(*slot, std::move(made));
    ++generation_;
    // Rules may have named the tenant before it was there.
    if (std::ranges::find(rules_, name, &Rule::tenant) != rules_.end()) place_all_by_rules();
    return *slot;
  }
  table_.change(*slot, changes);
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
  if (table_.has_below(name)) {
    return make_error(std::errc::device_or_resource_busy, "remove tenant",
                      fmt::format("there are tenants below '{}': remove them first", name));
  }
  drop_tenant(*slot);
  return {};
}

Result<uint32_t> Tenants::set_frozen(std::string_view name, bool is_frozen) {
  const auto slot = find(name);
  if (!slot) return no_such_tenant(name);
  table_.set_frozen(*slot, is_frozen);
  ++generation_;
  return *slot;
}

void Tenants::set_gpu_caps(uint32_t slot, std::map<uint32_t, Cap> caps) {
  table_.set_gpu_caps(slot, std::move(caps));
  ++generation_;
}

void Tenants::thaw_all() {
  processes_.thaw_all();
  for (const uint32_t slot : slots()) table_.set_frozen(slot, false);
  ++generation_;
}

void Tenants::forget() {
  thaw_all();
  for (const uint32_t slot : slots()) {
    if (!at(slot)->is_in_file && slot != kDefaultTenant)
      drop_tenant(slot);
    else
      table_.forget_changes(slot);
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

void Tenants::drop_the_finished() {
  for (const uint32_t slot : slots()) drop_if_over(slot);
}

Result<> Tenants::take(const TenantsConfig& config, bool does_file_win) {
  const auto going = table_.going_with(config);
  if (!going) return std::unexpected(going.error());
  for (const uint32_t slot : *going) drop_tenant(slot);
  table_.take(config, does_file_win);
  rules_ = config.rules;
  place_all_by_rules();
  ++generation_;
  return {};
}

uint32_t Tenants::add_process(ProcessIdentity identity) {
  TenantProcess& member = processes_.all()[identity.id];
  const bool is_first = !member.identity && !member.is_attached;
  if (const TenantProcess* ancestor = is_first ? processes_.attached_ancestor(identity) : nullptr) {
    member.is_attached = member.is_heir = true;
    member.slot = ancestor->slot;
  }
  if (!member.identity && member.run.number == 0) {
    member.run = processes_.inherited_run(identity);
    member.is_run_heir = member.run.number != 0;
  }
  processes_.note_or_warn(identity.id, member);
  member.identity = std::move(identity);
  if (!member.is_attached) place_by_rules(member);
  ++generation_;
  return member.slot;
}

uint32_t Tenants::place_of(const ProcessIdentity& identity) const {
  const TenantProcess* known = processes_.find(identity.id);
  if (known != nullptr && (known->identity || known->is_attached)) return known->slot;
  const TenantProcess* ancestor = processes_.attached_ancestor(identity);
  return ancestor == nullptr ? slot_by_rules(identity) : ancestor->slot;
}

Result<uint32_t> Tenants::begin_run(ProcessId process, Time now) {
  const uint32_t number = processes_.free_run_number(process);
  TenantProcess member = processes_.copy_of(process);
  member.run = {.number = number, .asked = now};
  member.is_run_heir = false;
  if (auto noted = processes_.put(process, std::move(member)); !noted)
    return std::unexpected(noted.error());
  ++generation_;
  on_attach_(process);
  return number;
}

Tenants::Run Tenants::run_of(ProcessId process) const {
  const TenantProcess* member = processes_.find(process);
  return member == nullptr ? Run{} : member->run;
}

Result<uint32_t> Tenants::attach(ProcessId process, std::string_view tenant) {
  const auto slot = find(tenant);
  if (!slot) return no_such_tenant(tenant);
  TenantProcess member = processes_.copy_of(process);
  const uint32_t before = member.slot;
  member.is_attached = true;
  member.is_heir = false;
  member.slot = *slot;
  if (auto noted = processes_.put(process, std::move(member)); !noted)
    return std::unexpected(noted.error());
  ++generation_;
  if (before != *slot) drop_if_over(before);
  on_attach_(process);
  return *slot;
}

Result<> Tenants::attach_scope(const std::string& cgroup, std::string_view tenant) {
  const auto slot = find(tenant);
  if (!slot) return no_such_tenant(tenant);
  if (!is_below_root(cgroup))
    return make_error(std::errc::invalid_argument, "attach a cgroup",
                      fmt::format("'{}' is not the path of a cgroup; allowed: its path below the "
                                  "root of the cgroups, such as /kubepods/pod1",
                                  cgroup));
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
  const TenantProcess* member = processes_.find(process);
  if (member == nullptr) return;
  const uint32_t slot = member->slot;
  processes_.erase(process);
  ++generation_;
  drop_if_over(slot);
}

void Tenants::leave_gpus(ProcessId process) {
  const auto found = processes_.all().find(process);
  if (found == processes_.all().end()) return;
  if (!found->second.is_noted()) return end_process(process);
  found->second.identity.reset();
  if (!found->second.is_attached) found->second.slot = kDefaultTenant;
  ++generation_;
}

void Tenants::leave_all_gpus() {
  std::vector<ProcessId> all;
  for (const auto& [process, member] : processes_.all())
    if (member.identity) all.push_back(process);
  for (const ProcessId& process : all) leave_gpus(process);
}

Result<> Tenants::set_frozen(ProcessId process, bool is_frozen) {
  if (const Tenant* const tenant = is_frozen ? nullptr : frozen_with(tenant_of(process)))
    return make_error(std::errc::invalid_argument, "thaw a process",
                      fmt::format("process {} is frozen with its tenant '{}': thaw the tenant "
                                  "(gpushare thaw {}), or move the process to another one",
                                  process.pid, tenant->name, tenant->name));
  TenantProcess member = processes_.copy_of(process);
  if (member.is_frozen == is_frozen) return {};
  member.is_frozen = is_frozen;
  if (auto noted = processes_.put(process, std::move(member)); !noted) return noted;
  ++generation_;
  return {};
}

const Tenant* Tenants::frozen_with(uint32_t slot) const {
  const Tenant* found = nullptr;
  for_line(slot, [&](uint32_t, const Tenant& tenant) {
    if (tenant.is_frozen_by_user) found = &tenant;
  });
  return found;
}

bool Tenants::is_frozen(ProcessId process) const {
  const TenantProcess* member = processes_.find(process);
  return member != nullptr && member->is_frozen;
}

uint32_t Tenants::tenant_of(ProcessId process) const {
  const TenantProcess* member = processes_.find(process);
  return member == nullptr ? kDefaultTenant : member->slot;
}

bool Tenants::is_attached(ProcessId process) const {
  const TenantProcess* const member = processes_.find(process);
  return member != nullptr && member->is_attached;
}

std::vector<ProcessId> Tenants::attached_without_gpu() const {
  std::vector<ProcessId> processes;
  for (const auto& [id, member] : processes_.all())
    if (!member.identity) processes.push_back(id);
  return processes;
}

std::vector<std::pair<ProcessId, uint32_t>> Tenants::attached() const {
  std::vector<std::pair<ProcessId, uint32_t>> processes;
  for (const auto& [id, member] : processes_.all())
    if (member.is_attached) processes.emplace_back(id, member.slot);
  return processes;
}

std::map<uint32_t, uint64_t> Tenants::driven_out() const {
  return roster_ == nullptr ? std::map<uint32_t, uint64_t>{} : roster_->driven_out();
}

void Tenants::drop_attachments(const std::function<bool(const ProcessId&)>& is_kept) {
  for (const auto& [process, slot] : attached())
    if (!is_kept(process)) detach(process);
  ++generation_;
}

// What was known of the process only by its attachment is forgotten.
void Tenants::detach(ProcessId process) {
  TenantProcess& member = processes_.all().at(process);
  member.is_attached = member.is_heir = false;
  processes_.note_or_warn(process, member);
  place_by_rules(member);
  if (!member.identity && !member.is_noted()) processes_.all().erase(process);
}

// In the roster its scopes and processes leave before it goes, so that none is ever in the next
// tenant there; the scopes first, as they would have the processes again.
void Tenants::drop_tenant(uint32_t slot) {
  const std::vector<uint32_t> above = at(slot)->above;
  table_.unname(slot);
  std::erase_if(scopes_, [&](const auto& scope) {
    if (scope.second == slot && roster_ != nullptr) roster_->erase_scope(scope.first);
    return scope.second == slot;
  });
  std::vector<ProcessId> attached_here;
  for (auto& [process, member] : processes_.all())
    if (member.slot == slot) attached_here.push_back(process);
  for (const ProcessId& process : attached_here) {
    TenantProcess& member = processes_.all().at(process);
    if (above.empty() || !member.is_attached) {
      detach(process);
      continue;
    }
    member.slot = above.front();
    processes_.note_or_warn(process, member);
  }
  table_.erase(slot);
  ++generation_;
}

uint32_t Tenants::slot_by_rules(const ProcessIdentity& identity) const {
  // Of those that hold it the innermost one, which comes last.
  for (const auto& [cgroup, slot] : std::views::reverse(scopes_))
    if ((identity.cgroup_path + "/").starts_with(cgroup + "/")) return slot;
  for (const Rule& rule : rules_) {
    const auto slot = find(rule.tenant);
    if (slot && rule_matches(rule, identity)) return *slot;
  }
  return kDefaultTenant;
}

void Tenants::place_by_rules(TenantProcess& member) const {
  member.slot = member.identity ? slot_by_rules(*member.identity) : kDefaultTenant;
}

void Tenants::place_all_by_rules() {
  for (auto& [id, member] : processes_.all())
    if (!member.is_attached) place_by_rules(member);
}

void Tenants::drop_if_over(uint32_t slot) {
  if (at(slot) == nullptr || !at(slot)->is_transient) return;
  if (table_.has_below(at(slot)->name)) return;
  const auto has_slot = [slot](const auto& member) { return member.second.slot == slot; };
  const bool has_scope =
      std::ranges::any_of(scopes_, [slot](const auto& scope) { return scope.second == slot; });
  if (!has_scope && std::ranges::none_of(processes_.all(), has_slot)) drop_tenant(slot);
}

}  // namespace gpushare
