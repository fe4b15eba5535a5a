// SPDX-License-Identifier: Apache-2.0
#include "sched/module/kernel_tenants.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

bool is_missing(const Error& error) { return error.code == std::errc::no_such_file_or_directory; }

// Only Tenants::create_transient() gives such names: "run-123", "run-123.2".
bool is_transient_name(std::string_view name) {
  return name.starts_with("run-") && name.size() > 4 &&
         name.find_first_not_of("0123456789.", 4) == std::string_view::npos;
}

}  // namespace

void KernelTenants::hand_over(const TenantsConfig& config) {
  const std::set<std::string> written = written_tenants(tree_);
  (void)seed_with_users(config, Seed::kMissing);
  std::set<uint32_t> handed_over;
  std::map<std::string, uint32_t> in_order;  // one that is above others comes before them
  for (const uint32_t slot : tenants_.slots()) in_order.emplace(tenants_.at(slot)->name, slot);
  for (const auto& [name, slot] : in_order) {
    const Tenant& tenant = *tenants_.at(slot);
    const bool is_there = tree_.has(tenant.name);
    if (written.contains(tenant.name) || (!is_there && !tenant.is_kept)) continue;
    Result<> done = make_with_above(tree_, tenant.name);  // the file may name those above no more
    if (done) done = tree_.write(tenant.name, tenant.at_run_time);
    if (done && tenant.is_frozen_by_user) done = tree_.write_freeze(tenant.name, true);
    log_failure(done, tenant.name);
    if (done) handed_over.insert(slot);
  }
  for (const auto& [process, slot] : tenants_.attached()) {
    if (slot == kDefaultTenant || !handed_over.contains(slot)) continue;
    if (processes_.has_ended(process)) continue;  // its pid may be another's
    const auto attached = tree_.attach(process.pid, tenants_.at(slot)->name);
    if (!attached && attached.error().code != std::errc::no_such_process)
      log_warning("process {}: {}", process.pid, attached.error().message());
  }
}

void KernelTenants::start(const TenantsConfig& config, const std::set<ProcessId>& may_remain) {
  // Of those that have ended, and whose work may remain, the module says nothing.
  tenants_.drop_attachments([&](const ProcessId& process) {
    return may_remain.contains(process) && processes_.has_ended(process);
  });
  seed(config, Seed::kMissing);
}

// What the name service says late is taken late.
Seeded KernelTenants::seed_with_users(const TenantsConfig& config, Seed what) {
  std::vector<std::string> users;
  for (const Rule& rule : config.rules)
    if (rule.is_by_user_alone()) users.push_back(*rule.user);
  users_.begin(users);
  return seed_sysfs(tree_, config, what,
                    [this](const std::string& user) { return users_.find(user); });
}

// They are rules by uid alone: behind one of these the kernel gets no other kind.
void KernelTenants::take_late_users() {
  if (!users_.take_news()) return;
  SplitRules rules =
      split_rules(rules_, [this](const std::string& user) { return users_.find(user); });
  for (std::size_t i = kernel_rules_.size(); i < rules.of_kernel.size(); ++i) {
    const KernelRule& rule = rules.of_kernel[i];
    const bool is_taken = !does_file_win_ && shown_rules_[rule.tenant].uid.has_value();
    if (rule.uid && take_uid_.contains(rule.tenant) && !is_taken)
      log_failure(tree_.write_match_uid(rule.tenant, rule.uid), rule.tenant);
    dirty_.insert(rule.tenant);
  }
  must_take_rules_ |= rules.of_kernel.size() != kernel_rules_.size();
  kernel_rules_ = std::move(rules.of_kernel);
}

void KernelTenants::seed(const TenantsConfig& config, Seed what) {
  Seeded seeded = seed_with_users(config, what);
  kernel_rules_ = std::move(seeded.rules);
  take_uid_ = std::move(seeded.take_uid);
  does_file_win_ = what == Seed::kAll;
  rules_ = config.rules;
  must_take_rules_ = true;
  mirror_all();
  if (std::exchange(must_take_rules_, false)) take_rules();
}

void KernelTenants::take_rules() {
  std::vector<KernelRule> shown;
  for (const auto& [tenant, rules] : shown_rules_) {
    if (!rules.cgroup.empty()) shown.push_back({tenant, rules.cgroup, std::nullopt});
    if (rules.uid) shown.push_back({tenant, "", rules.uid});
  }
  TenantsConfig in_force;
  in_force.rules = rules_in_force(rules_, kernel_rules_, shown);
  if (auto taken = tenants_.reload(in_force); !taken)
    log_warning("rules: {}", taken.error().message());
}

void KernelTenants::on_notice(const KernelNotice& notice) {
  if (const auto* assigned = std::get_if<TenantAssigned>(&notice.what)) {
    note(*assigned);
  } else if (const auto* changed = std::get_if<SettingsChanged>(&notice.what)) {
    if (!check_tenant_name(changed->tenant)) return;
    const bool is_about_members = changed->what == SettingsChanged::What::kMembers;
    (is_about_members ? dirty_members_ : dirty_).insert(changed->tenant);
  } else if (const auto* control = std::get_if<ControlRefused>(&notice.what)) {
    (void)refusals_.note(notice.time, *control);
  } else if (const auto* memory = std::get_if<MemoryRefused>(&notice.what)) {
    (void)refusals_.note(notice.time, *memory);
  } else {
    must_mirror_all_ = true;
  }
}

void KernelTenants::note(const TenantAssigned& assigned) {
  if (assigned.is_opening && assigned.tenant == kDefaultTenantName) {
    undecided_.insert(assigned.process);
    placed_of_ = 0;
    return;
  }
  undecided_.erase(assigned.process);
  mirror_line(assigned.tenant);  // the tenant's own notice comes later
  put(assigned.process, assigned.tenant);
}

// Brings those of the tenant and the ones above it that the mirror does not have.
void KernelTenants::mirror_line(std::string_view tenant) {
  if (tenant.empty() || tenants_.find(tenant)) return;
  mirror_line(name_above(tenant));
  mirror(std::string(tenant));
}

// Those that are gone from below, the others from above: nothing is ever without what is above it.
void KernelTenants::mirror_each(const std::set<std::string>& names) {
  for (const std::string& name : names | std::views::reverse)
    if (!tree_.has(name)) mirror(name);
  for (const std::string& name : names) {
    if (!tree_.has(name)) continue;
    mirror_line(name_above(name));
    mirror(name);
  }
}

void KernelTenants::put(const ProcessId& process, const std::string& tenant) {
  if (const auto attached = tenants_.attach(process, tenant); !attached)
    log_warning("process {}: {}", process.pid, attached.error().message());
}

bool KernelTenants::follow(Time now) {
  const uint64_t before = tenants_.generation();
  take_late_users();
  if (!is_told_) look(now);
  if (std::exchange(must_mirror_all_, false)) mirror_all();
  mirror_each(std::exchange(dirty_, {}));
  for (const std::string& tenant : std::exchange(dirty_members_, {})) mirror_members(tenant);
  if (std::exchange(must_take_rules_, false)) take_rules();
  place_the_undecided();
  remove_the_finished();
  return tenants_.generation() != before;
}

void KernelTenants::look(Time now) {
  if (now < next_look_) return;
  next_look_ = now + kLook;
  const auto generation = tree_.generation();
  if (generation && generation == seen_generation_) return;
  seen_generation_ = generation;
  must_mirror_all_ = true;
}

void KernelTenants::mirror_all() {
  const auto names = tree_.tenants();
  if (!names) {
    log_warning("tenants are not followed: {}", names.error().message());
    return;
  }
  std::set<std::string> all(names->begin(), names->end());
  for (const uint32_t slot : tenants_.slots()) all.insert(tenants_.at(slot)->name);
  mirror_each(all);
  for (const std::string& name : *names) mirror_members(name);
}

void KernelTenants::set_gpus(std::span<const GpuInfo> gpus) {
  std::map<std::string, uint32_t> named;
  for (const GpuInfo& gpu : gpus) {
    if (gpu.instance == kNoInstance) continue;
    named["gpu" + std::to_string(gpu.instance)] = gpu.index;
    if (!gpu.uuid.empty()) named[gpu.uuid] = gpu.index;
  }
  must_mirror_all_ |= named != gpus_;
  gpus_ = std::move(named);
}

std::map<uint32_t, Cap> KernelTenants::by_index(const std::map<std::string, Cap>& caps) const {
  std::map<uint32_t, Cap> known;
  for (const auto& [name, cap] : caps)
    if (const auto gpu = gpus_.find(name); gpu != gpus_.end()) known[gpu->second] = cap;
  return known;
}

// Makes the tenant in the mirror what it is in sysfs: its settings, or gone.
void KernelTenants::mirror(const std::string& name) {
  const auto present = tree_.read(name);
  if (!present && !is_missing(present.error())) {
    log_warning("tenant '{}' is not followed: {}", name, present.error().message());
    return;
  }
  const auto slot = tenants_.find(name);
  const ShownRules rules =
      present ? ShownRules{present->match_cgroup, present->match_uid} : ShownRules{};
  must_take_rules_ |= std::exchange(shown_rules_[name], rules) != rules;
  if (!present) {
    shown_rules_.erase(name);
    transients_.erase(name);
    if (slot && *slot != kDefaultTenant) log_failure(tenants_.remove(name), name);
    return;
  }
  if (!slot || !tenants_.at(*slot)->is_kept || tenants_.at(*slot)->settings != present->settings) {
    const auto taken = tenants_.set(name, format_settings(present->settings), /*create=*/true);
    if (!taken) return log_warning("tenant '{}': {}", name, taken.error().message());
  }
  const uint32_t mirrored = *tenants_.find(name);
  if (auto caps = by_index(present->gpu_caps); tenants_.at(mirrored)->gpu_caps != caps)
    tenants_.set_gpu_caps(mirrored, std::move(caps));
  if (tenants_.at(mirrored)->is_frozen_by_user != present->is_frozen)
    (void)tenants_.set_frozen(name, present->is_frozen);  // it is there
  // An agent before this one made it.
  if (is_transient_name(name) && transients_.insert(name).second)
    tenants_.mark_transient(*tenants_.find(name));
}

// Members of `default` are not mirrored: they may be there for want of a rule, and are undecided.
void KernelTenants::mirror_members(const std::string& tenant) {
  if (tenant == kDefaultTenantName || !tenants_.find(tenant)) return;
  const auto pids = tree_.procs(tenant);
  if (!pids) return;  // the tenant was removed meanwhile, of which a notice comes
  bool has_member = false;
  for (const pid_t pid : *pids) {
    const auto link = processes_.link(pid);
    if (!link) {
      has_member |= !processes_.has_ended({pid, 0});
      continue;
    }
    has_member = true;
    undecided_.erase(link->id);
    const auto slot = tenants_.find(tenant);
    if (slot && tenants_.tenant_of(link->id) == *slot) continue;
    put(link->id, tenant);
  }
  if (has_member || !transients_.contains(tenant) || has_ended_member(tenant)) return;
  log_failure(tenants_.remove(tenant), tenant);  // its last process ended unseen
}

// Whether the mirror has one that has ended: work of it may remain, and when none does, or has, it
// is ended there, and a transient tenant goes with it.
bool KernelTenants::has_ended_member(const std::string& tenant) const {
  const auto slot = tenants_.find(tenant);
  return std::ranges::any_of(tenants_.attached(), [&](const auto& member) {
    return member.second == slot && processes_.has_ended(member.first);
  });
}

void KernelTenants::place_the_undecided() {
  if (undecided_.empty() || placed_of_ == tenants_.generation()) return;
  std::erase_if(undecided_, [&](const ProcessId& process) {
    if (processes_.has_ended(process)) return true;
    const Tenant* tenant = tenants_.at(tenants_.tenant_of(process));
    if (tenant == nullptr || tenant->name == kDefaultTenantName) return false;
    const auto attached = tree_.attach(process.pid, tenant->name);
    if (!attached && attached.error().code != std::errc::no_such_process)
      log_warning("process {}: {}", process.pid, attached.error().message());
    return true;
  });
  placed_of_ = tenants_.generation();
}

// Removes from sysfs the transient tenants that went from the mirror with their last process.
void KernelTenants::remove_the_finished() {
  std::erase_if(transients_, [&](const std::string& name) {
    if (tenants_.find(name)) return false;
    if (auto removed = tree_.remove(name); !removed && !is_missing(removed.error()))
      log_failure(removed, name);
    return true;
  });
}

Result<> KernelTenants::set(std::string_view tenant, std::span<const Setting> settings,
                            bool create) {
  TenantSettings scratch;
  if (auto valid = apply_settings(scratch, settings); !valid) return valid;
  bool is_new = false;  // not if somebody else has made it meanwhile
  if (create && !tree_.has(tenant)) {
    const auto made = tree_.create(tenant);
    if (!made) return std::unexpected(made.error());
    is_new = *made;
  }
  if (auto written = tree_.write(tenant, settings); !written) {
    if (is_new) log_failure(tree_.remove(tenant), tenant);
    return written;
  }
  mirror_line(name_above(tenant));
  mirror(std::string(tenant));
  return {};
}

// The kernel removes one below another only while it is empty: its processes go into that one,
// which binds them as it did.
Result<> KernelTenants::remove_from_sysfs(const std::string& tenant) {
  const std::string above(name_above(tenant));
  const auto pids =
      above.empty() ? std::vector<pid_t>() : tree_.procs(tenant).value_or(std::vector<pid_t>());
  for (const pid_t pid : pids)
    if (auto moved = tree_.attach(pid, above);
        !moved && moved.error().code != std::errc::no_such_process)
      return moved;
  return tree_.remove(tenant);
}

Result<> KernelTenants::remove(std::string_view tenant) {
  if (auto removed = remove_from_sysfs(std::string(tenant)); !removed) return removed;
  mirror(std::string(tenant));
  return {};
}

Result<> KernelTenants::attach(ProcessId process, std::string_view tenant) {
  if (auto attached = tree_.attach(process.pid, tenant); !attached) return attached;
  undecided_.erase(process);
  mirror_line(tenant);
  const auto slot = tenants_.attach(process, tenant);
  if (!slot) return std::unexpected(slot.error());
  return {};
}

Result<> KernelTenants::set_frozen(std::string_view tenant, bool is_frozen) {
  if (auto written = tree_.write_freeze(tenant, is_frozen); !written) return written;
  mirror(std::string(tenant));
  return {};
}

Result<std::string> KernelTenants::create_transient(ProcessId root,
                                                    std::span<const Setting> settings) {
  std::string name = tenants_.transient_name(root);
  if (auto made = set(name, settings, /*create=*/true); !made) return std::unexpected(made.error());
  if (auto attached = attach(root, name); !attached) {
    log_failure(remove(name), name);
    return std::unexpected(attached.error());
  }
  if (const auto slot = tenants_.find(name)) tenants_.mark_transient(*slot);
  transients_.insert(name);
  return name;
}

// Goes on after a failure, and returns the first one.
Result<> KernelTenants::forget(const TenantsConfig& config) {
  const auto names = tree_.tenants();
  if (!names) return std::unexpected(names.error());
  Result<> all;
  for (const std::string& name : *names | std::views::reverse) {  // those below others first
    const auto written = std::ranges::find(config.tenants, name, &TenantConfig::name);
    const bool is_in_file = written != config.tenants.end();
    TenantSettings settings;
    if (is_in_file) (void)apply_settings(settings, written->settings);  // the file was checked
    const bool stays = is_in_file || name == kDefaultTenantName;
    Result<> done = stays ? tree_.write(name, format_settings(settings)) : remove_from_sysfs(name);
    if (done && stays) done = tree_.write_freeze(name, false);
    mirror(name);
    if (all && !done) all = done;
  }
  const bool did_file_win = does_file_win_;
  seed(config, Seed::kMissing);
  does_file_win_ = did_file_win;
  tenants_.thaw_all();
  return all;
}

}  // namespace gpushare
