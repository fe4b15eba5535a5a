// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenant_records.h"

#include <algorithm>

#include "shmctl/settings/record_settings.h"

namespace gpushare {

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
