// SPDX-License-Identifier: Apache-2.0
// Parses hostile bytes as a configuration file. A file that is accepted must keep the invariants of
// its type; a refusal must say where and why.
#include "sched/tenants/config.h"
#include "sched/tenants/tenants.h"
#include "tests/sched/support/policies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = gpushare::test::parse(text, "fuzz.toml");
  if (!config) {
    if (config.error().empty()) __builtin_trap();
    for (const gpushare::ConfigError& error : config.error()) {
      if (error.line == 0 || error.text.empty()) __builtin_trap();
    }
    return 0;
  }
  for (const gpushare::TenantConfig& tenant : config->tenants) {
    gpushare::TenantSettings settings, again;
    if (!gpushare::check_tenant_name(tenant.name)) __builtin_trap();
    if (!apply_settings(settings, tenant.settings)) __builtin_trap();
    if (!apply_settings(again, format_settings(settings)) || again != settings) __builtin_trap();
  }
  for (const auto& [index, gpu] : config->gpus) {
    if (gpu.policy.entry->needs.spatial && !gpu.is_spatial) __builtin_trap();
    for (const gpushare::PolicyOption& option : gpu.policy.entry->options) {
      const int64_t value = gpu.policy.options[option.key];
      if (value < option.least || value > option.most) __builtin_trap();
    }
    if (gpu.policy.entry->check && gpu.policy.entry->check(gpu.policy.options)) __builtin_trap();
  }
  gpushare::Tenants tenants;
  if (!tenants.reload(*config)) __builtin_trap();
  for (const gpushare::Rule& rule : config->rules) {
    if (!tenants.find(rule.tenant)) __builtin_trap();
    gpushare::ProcessIdentity identity;
    identity.cgroup_path = rule.cgroup.value_or("");
    identity.command = rule.command.value_or("");
    identity.user = rule.user.value_or("");
    if (!rule_matches(rule, identity)) __builtin_trap();  // a glob matches itself
  }
  return 0;
}
