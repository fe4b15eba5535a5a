// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/takeover.h"

#include <algorithm>
#include <map>
#include <vector>

#include "shmctl/base/log.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {
namespace {

TenantSettings settings_of(const TenantRecord& record) {
  TenantSettings settings;
  settings.weight = record.weight;
  settings.priority = record.priority;
  if (record.quota_us != kUnknown64)
    settings.cap = Cap{.quota = Micros(record.quota_us), .period = Micros(record.period_us)};
  if (record.memory_max_bytes != kUnknown64) settings.memory_max = record.memory_max_bytes;
  if (record.sm_percent != kUnknown32) settings.sm_percent = record.sm_percent;
  settings.slo = Micros(record.slo_us);
  return settings;
}

// Returns what must be set so that `have` becomes `want`.
std::vector<Setting> difference(const TenantSettings& have, const TenantSettings& want) {
  std::vector<Setting> changes;
  for (const Setting& setting : format_settings(want))
    if (format_setting(have, setting.key) != setting.value) changes.push_back(setting);
  return changes;
}

template <class T>
void clear(Slot<T>& slot) {
  if (is_written(slot)) write_record(slot, T{});
}

bool is_transient(std::string_view name) { return name.starts_with("run-"); }

void freeze(Tenants& tenants, const std::string& name) {
  if (const auto frozen = tenants.set_frozen(name, true); !frozen)
    log_warning("tenant '{}': {}", name, frozen.error().message());
}

// Returns the name that the tenant has now; empty: it went with its last process.
Result<std::string> take_over(const TenantRecord& record, const std::vector<ProcessId>& alive,
                              const Tenants& tenants, TenantControl& control) {
  const TenantSettings want = settings_of(record);
  const std::optional<uint32_t> present = tenants.find(record.name);
  if (!present && is_transient(record.name)) {
    if (alive.empty()) return std::string();
    return control.create_transient(alive.front(), difference(TenantSettings{}, want));
  }
  const TenantSettings have = present ? tenants.at(*present)->settings : TenantSettings{};
  const std::vector<Setting> changes = difference(have, want);
  if (!present || !changes.empty())
    if (auto set = control.set(record.name, changes, /*create=*/true); !set)
      return std::unexpected(set.error());
  return std::string(record.name);
}

}  // namespace

void take_over_tenants(const ControlPlane& plane, const ProcReader& processes, Tenants& tenants,
                       TenantControl& control, const std::set<std::string>& kept) {
  const auto snapshot = take_snapshot(plane);
  if (!snapshot || snapshot->agent.agent_pid == 0) return;
  std::map<uint32_t, std::vector<ProcessId>> alive;  // by tenant slot of the dead agent
  for (const auto& [slot, record] : snapshot->processes) {
    const ProcessId process{record.pid, record.start_ticks};
    auto& list = alive[record.tenant];
    if (std::ranges::find(list, process) == list.end() && processes.is_alive(process))
      list.push_back(process);
  }
  for (const auto& [slot, record] : snapshot->tenants) {
    if (kept.contains(record.name)) continue;
    const Result<std::string> name = take_over(record, alive[slot], tenants, control);
    if (!name) {
      log_warning("tenant '{}' is not as it was: {}", record.name, name.error().message());
      continue;
    }
    if (name->empty() || *name == kDefaultTenantName) continue;
    for (const ProcessId& process : alive[slot])
      if (const auto attached = control.attach(process, *name); !attached)
        log_warning("process {}: {}", process.pid, attached.error().message());
    if (record.frozen_by_user != 0) freeze(tenants, *name);
  }
}

bool were_tenants_in_sysfs(const ControlPlane& plane) {
  const auto agent = read_record(plane.region().agent);
  return agent && agent->are_tenants_in_sysfs != 0;
}

void take_over_frozen(const ControlPlane& plane, Tenants& tenants) {
  const auto snapshot = take_snapshot(plane);
  if (!snapshot || snapshot->agent.agent_pid == 0) return;
  for (const auto& [slot, record] : snapshot->tenants)
    if (record.frozen_by_user != 0 && tenants.find(record.name)) freeze(tenants, record.name);
}

void clear_gpus(Region& region) {
  for (ProcessSlot& process : region.processes) clear(process.record);
  for (auto& gpu : region.gpus) clear(gpu);
}

void clear_records(Region& region) {
  clear_gpus(region);
  for (TenantSlot& tenant : region.tenants) clear(tenant.record);
  clear(region.agent);
}

}  // namespace gpushare
