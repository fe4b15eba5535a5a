// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/takeover.h"

#include <string>
#include <utility>
#include <vector>

namespace gpushare {
namespace {

template <class T>
void clear(Slot<T>& slot) {
  if (is_written(slot)) write_record(slot, T{});
}

// Leaves what was set, and what the tenant has used so far, with which the next agent goes on
// (published_use()).
void clear_present(Slot<TenantRecord>& slot) {
  if (!is_written(slot)) return;
  TenantRecord record = read_record(slot).value_or(TenantRecord());
  record.process_count = 0;
  record.memory_bytes = 0;
  for (TenantGpuUse& use : record.gpu) use = {.gpu_time_ns = use.gpu_time_ns};
  write_record(slot, record);
}

// What systemd or `gpushare run --scope` made for one program is not used again.
bool goes_when_empty(const std::string& cgroup) { return cgroup.ends_with(".scope"); }

}  // namespace

void end_the_dead(Tenants& tenants, const ProcReader& processes,
                  const std::function<bool(const ProcessId&)>& is_kept) {
  std::vector<ProcessId> ended = tenants.attached_without_gpu();
  std::erase_if(ended, [&](const ProcessId& process) {
    return !processes.has_ended(process) || (is_kept && is_kept(process));
  });
  for (const ProcessId& process : processes.extinct(std::move(ended))) tenants.end_process(process);
  for (const std::string& cgroup : tenants.scopes())
    if (goes_when_empty(cgroup) && !processes.has_processes(cgroup)) tenants.end_scope(cgroup);
  // An agent may have died between making one and putting its first process there.
  tenants.drop_the_finished();
}

void clear_gpus(Region& region) {
  for (ProcessSlot& process : region.processes) clear(process.record);
  for (auto& gpu : region.gpus) clear(gpu);
}

void clear_records(Region& region) {
  clear_gpus(region);
  for (TenantSlot& tenant : region.tenants) clear_present(tenant.record);
  clear(region.agent);
}

void write_ending(Region& region, uint32_t agent_pid, EndingKind kind, uint32_t code, Time now) {
  EndingRecord ending;
  ending.agent_pid = agent_pid;
  ending.kind = kind;
  ending.code = code;
  ending.ended_ns = stored_ns(now);
  write_record(region.ending, ending);
}

}  // namespace gpushare
