// SPDX-License-Identifier: Apache-2.0
// Tenants and their settings as the control plane's records hold them, and back. Pure functions.
#pragma once

#include "sched/tenants/tenants.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// Record: TenantRecord or RosterTenant, whose members for settings have the same names.
template <class Record>
void put_settings(Record& record, const TenantSettings& settings) {
  record.weight = settings.weight;
  record.priority = settings.priority;
  if (settings.cap) {
    record.quota_us = static_cast<uint64_t>(settings.cap->quota.count());
    record.period_us = static_cast<uint64_t>(settings.cap->period.count());
  }
  if (settings.memory_max) record.memory_max_bytes = *settings.memory_max;
  if (settings.sm_percent) record.sm_percent = *settings.sm_percent;
  record.slo_us = static_cast<uint32_t>(settings.slo.count());
  record.length_us = static_cast<uint64_t>(settings.length.count());
  record.iterations = settings.iterations;
  record.phase = settings.phase;
  record.gang = settings.gang;
  record.sm_min = settings.sm_min;
  record.sm_shown = settings.sm_shown ? 1 : 0;
}

// What the roster keeps of a tenant: all but what the file says.
RosterTenant roster_record(const Tenant& tenant);
// The tenant without its settings from the file. Error invalid_argument for a record that no agent
// can have written.
Result<Tenant> tenant_from(const RosterTenant& record);

}  // namespace gpushare
