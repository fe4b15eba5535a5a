// SPDX-License-Identifier: Apache-2.0
#include "sched/step/views.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

// What the tenant says goes before what the process shows.
ShimPhase phase_of(const ProcessView& process, const Tenants& tenants) {
  const Tenant* const tenant = tenants.at(process.tenant);
  switch (tenant == nullptr ? TenantPhase::kAuto : tenant->settings.phase) {
    case TenantPhase::kPrefill:
      return ShimPhase::kPrefill;
    case TenantPhase::kDecode:
      return ShimPhase::kDecode;
    case TenantPhase::kNone:
      return ShimPhase::kUnknown;
    case TenantPhase::kAuto:
      break;
  }
  return process.iterations ? process.iterations->phase : ShimPhase::kUnknown;
}

}  // namespace

std::optional<CapView> cap_view(const Tenant& tenant, uint32_t gpu, const TokenBucket& bucket) {
  const std::optional<Cap> cap = tenant.cap_on(gpu);
  if (!cap) return std::nullopt;
  return CapView{.fraction = cap->fraction(),
                 .period = cap->period,
                 .burst = cap->quota,
                 .tokens = bucket.tokens()};
}

void Views::set_jobs(std::span<const JobView> jobs,
                     const std::function<uint64_t(const ProcessId&)>& job_of) {
  jobs_ = jobs;
  for (ProcessView& process : processes_) process.job = job_of(process.process);
}

void Views::set_held(const std::function<bool(const ProcessId&)>& is_held) {
  for (ProcessView& process : processes_)
    process.is_held = process.has_context && is_held(process.process);
}

void Views::clear() {
  jobs_ = {};
  tenants_.clear();
  processes_.clear();
}

void Views::join(std::vector<ProcessView> shim) {
  if (shim.empty()) return;
  joined_.clear();
  auto next = processes_.begin();
  uint32_t unused_id = kMaxProcesses;
  for (ProcessView& said : shim) {
    while (next != processes_.end() && next->process < said.process) joined_.push_back(*next++);
    if (next == processes_.end() || next->process != said.process) {
      said.id = unused_id++;
      joined_.push_back(said);
      continue;
    }
    ProcessView& process = joined_.emplace_back(*next++);
    process.has_shim = true;
    process.last_launch = said.last_launch;
    process.lends = said.lends;
    process.iterations = said.iterations;
  }
  joined_.insert(joined_.end(), next, processes_.end());
  std::swap(processes_, joined_);
}

void Views::add_tenants(uint32_t gpu, const Tenants& tenants, const Region& region,
                        const ShimProcesses* shims) {
  std::vector<std::pair<uint32_t, bool>> ids;  // and whether a process has the shim
  ids.reserve(processes_.size());
  for (const ProcessView& process : processes_) ids.emplace_back(process.tenant, process.has_shim);
  std::ranges::sort(ids);
  for (ProcessView& process : processes_) process.phase = phase_of(process, tenants);
  for (auto at = ids.begin(); at != ids.end();) {
    const uint32_t id = at->first;
    bool has_shim = false;
    for (; at != ids.end() && at->first == id; ++at) has_shim |= at->second;
    const Tenant* const found = tenants.at(id);
    if (found == nullptr) continue;
    const Tenant& tenant = *found;
    const TenantPartition partition =
        shims == nullptr ? TenantPartition{} : shims->partition(id, gpu);
    tenants_.push_back({.id = id,
                        .weight = tenant.settings.weight,
                        .priority = tenant.settings.priority,
                        .cap = cap_view(tenant, gpu, region.tenants[id].buckets[gpu]),
                        .sm_percent = tenant.settings.sm_percent,
                        .slo = tenant.settings.slo,
                        .phase = tenant.settings.phase,
                        .is_frozen_by_user = tenant.is_frozen_by_user,
                        .has_shim = has_shim,
                        .groups = partition.groups,
                        .sharers = partition.sharers});
  }
}

const CapView* Views::cap_of(uint32_t tenant) const {
  const auto at = std::ranges::lower_bound(tenants_, tenant, {}, &TenantView::id);
  return at == tenants_.end() || at->id != tenant || !at->cap ? nullptr : &*at->cap;
}

}  // namespace gpushare
