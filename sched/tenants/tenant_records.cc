// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenant_records.h"

#include <algorithm>

namespace gpushare {
namespace {

TenantSettings settings_of(const RosterTenant& record) {
  TenantSettings settings;
  settings.weight = record.weight;
  settings.priority = record.priority;
  if (record.quota_us != kUnknown64)
    settings.cap = Cap{.quota = Micros(record.quota_us), .period = Micros(record.period_us)};
  if (record.memory_max_bytes != kUnknown64) settings.memory_max = record.memory_max_bytes;
  if (record.sm_percent != kUnknown32) settings.sm_percent = record.sm_percent;
  settings.slo = Micros(record.slo_us);
  settings.length = Micros(record.length_us);
  settings.iterations = record.iterations;
  settings.phase = record.phase;
  settings.gang = record.gang;
  settings.sm_min = record.sm_min;
  settings.sm_shown = record.sm_shown != 0;
  return settings;
}

}  // namespace

RosterTenant roster_record(const Tenant& tenant) {
  RosterTenant record;
  std::ranges::copy_n(
      tenant.name.begin(),
      static_cast<std::ptrdiff_t>(std::min(tenant.name.size(), sizeof record.name - 1)),
      record.name);
  record.flags = (tenant.is_kept ? kRosterKept : 0) | (tenant.is_transient ? kRosterTransient : 0) |
                 (tenant.is_frozen_by_user ? kRosterFrozen : 0);
  TenantSettings at_run_time;
  (void)apply_settings(at_run_time, tenant.at_run_time);  // they were checked when they came in
  put_settings(record, at_run_time);
  const std::span<const std::string_view> keys = setting_keys();
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (std::ranges::find(tenant.at_run_time, keys[i], &Setting::key) != tenant.at_run_time.end())
      record.set |= 1u << i;
  return record;
}

Result<Tenant> tenant_from(const RosterTenant& record) {
  Tenant tenant;
  tenant.name = record.name;
  if (auto named = check_tenant_name(tenant.name); !named) return std::unexpected(named.error());
  tenant.is_kept = (record.flags & kRosterKept) != 0;
  tenant.is_transient = (record.flags & kRosterTransient) != 0;
  tenant.is_frozen_by_user = (record.flags & kRosterFrozen) != 0;
  const std::vector<Setting> all = format_settings(settings_of(record));
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((record.set >> i & 1u) != 0) tenant.at_run_time.push_back(all[i]);
  if (auto valid = apply_settings(tenant.settings, tenant.at_run_time); !valid)
    return std::unexpected(valid.error());
  return tenant;
}

}  // namespace gpushare
