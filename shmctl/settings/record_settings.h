// SPDX-License-Identifier: Apache-2.0
// A tenant's settings as the control plane's records hold them, and back. The record is a
// TenantRecord or a RosterTenant, whose members for settings have the same names. Pure functions,
// for the agent, which writes the records, and for the tools, which read them.
#pragma once

#include "shmctl/plane/layout.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

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

template <class Record>
TenantSettings settings_of(const Record& record) {
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

}  // namespace gpushare
