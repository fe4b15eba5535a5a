// SPDX-License-Identifier: Apache-2.0
#include "sched/module/sysfs_seed.h"

#include <utility>

#include "sched/tenants/tenants.h"
#include "shmctl/base/log.h"

namespace gpushare {

void log_failure(const Result<>& done, std::string_view tenant) {
  if (!done) log_warning("tenant '{}': {}", tenant, done.error().message());
}

namespace {

// Makes the tenants that are not there, and returns their names. The kernel tries rules in the
// order in which tenants were made, so that is the file's, but for those above others.
std::set<std::string> make_missing(SysfsTree& tree, const TenantsConfig& config) {
  std::set<std::string> missing;
  for (const TenantConfig& written : config.tenants)
    if (!tree.has(written.name)) missing.insert(written.name);
  for (const TenantConfig& written : config.tenants)
    log_failure(make_with_above(tree, written.name), written.name);
  std::erase_if(missing, [&tree](const std::string& name) { return !tree.has(name); });
  return missing;
}

}  // namespace

Result<> make_with_above(SysfsTree& tree, std::string_view tenant) {
  if (tenant.empty() || tree.has(tenant)) return {};
  if (auto made = make_with_above(tree, name_above(tenant)); !made) return made;
  if (const auto made = tree.create(tenant); !made) return std::unexpected(made.error());
  return {};
}

Seeded seed_sysfs(SysfsTree& tree, const TenantsConfig& config, Seed what,
                  const std::function<std::optional<uid_t>(const std::string&)>& uid_of) {
  SplitRules rules = split_rules(config.rules, uid_of);
  Seeded seeded;
  const std::set<std::string> made = make_missing(tree, config);
  for (const TenantConfig& written : config.tenants) {
    const bool is_new = made.contains(written.name);
    if (!tree.has(written.name)) continue;  // it could not be made
    const bool is_all = is_new || what == Seed::kAll;
    const bool is_default = written.name == kDefaultTenantName;
    const auto present = tree.read(written.name);
    std::vector<Setting> settings;
    for (const Setting& setting : written.settings) {
      const bool is_unwritten =
          is_default && present &&
          format_setting(present->settings, setting.key) == format_setting({}, setting.key);
      if (is_all || is_unwritten) settings.push_back(setting);
    }
    log_failure(tree.write(written.name, settings), written.name);
    if (!is_all && !is_default) continue;
    const bool takes_uid = is_all || !present || !present->match_uid;
    if (takes_uid) seeded.take_uid.insert(written.name);
    for (const KernelRule& rule : rules.of_kernel) {
      if (rule.tenant != written.name) continue;
      if (rule.uid && takes_uid)
        log_failure(tree.write_match_uid(rule.tenant, rule.uid), rule.tenant);
      if (!rule.uid && (is_all || !present || present->match_cgroup.empty()))
        log_failure(tree.write_match_cgroup(rule.tenant, rule.cgroup), rule.tenant);
    }
  }
  seeded.rules = std::move(rules.of_kernel);
  return seeded;
}

std::set<std::string> written_tenants(const SysfsTree& tree) {
  std::set<std::string> names;
  for (const std::string& name : tree.tenants().value_or(std::vector<std::string>{})) {
    const auto present = tree.read(name);
    const bool is_as_made = present && present->settings == TenantSettings{} && !present->is_frozen;
    if (name != kDefaultTenantName || !is_as_made) names.insert(name);
  }
  return names;
}

}  // namespace gpushare
