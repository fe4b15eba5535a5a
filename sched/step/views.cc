// SPDX-License-Identifier: Apache-2.0
#include "sched/step/views.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sched/policy/cap_gate.h"

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

std::optional<CapView> cap_view(const Tenants& tenants, uint32_t slot, uint32_t gpu,
                                const Region& region) {
  std::optional<CapView> least;
  tenants.for_line(slot, [&](uint32_t at, const Tenant& tenant) {
    const std::optional<Cap> cap = tenant.cap_on(gpu);
    if (!cap) return;
    const CapView one{.fraction = cap->fraction(),
                      .period = cap->period,
                      .burst = cap->quota,
                      .tokens = region.tenants[at].buckets[gpu].tokens()};
    least = least ? binding(*least, one) : one;
  });
  return least;
}

void Views::set_jobs(std::span<JobView> jobs,
                     const std::function<uint64_t(const ProcessId&)>& job_of) {
  jobs_ = jobs;
  for (ProcessView& process : processes_) process.job = job_of(process.process);
  if (tree_.empty()) return;
  lay_tree_flat();
  for (JobView& job : jobs)
    if (const TenantView* const tenant = tenant_of(job.tenant)) job.weight = tenant->weight;
}

void Views::set_held(const std::function<bool(const ProcessId&)>& is_held) {
  for (ProcessView& process : processes_)
    process.is_held = process.has_context && is_held(process.process);
}

void Views::clear() {
  jobs_ = {};
  tenants_.clear();
  tree_.clear();
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
                        .weight = static_cast<double>(tenant.settings.weight),
                        .priority = tenant.priority,
                        .cap = cap_view(tenants, id, gpu, region),
                        .sm_percent = tenant.settings.sm_percent,
                        .slo = tenant.settings.slo,
                        .phase = tenant.settings.phase,
                        .is_frozen_by_user = tenant.is_frozen,
                        .has_shim = has_shim,
                        .groups = partition.groups,
                        .sharers = partition.sharers});
  }
  take_tree(tenants, gpu);
  if (!tree_.empty()) lay_tree_flat();
}

void Views::take_tree(const Tenants& tenants, uint32_t gpu) {
  const auto is_below = [&](const TenantView& view) { return !tenants.at(view.id)->above.empty(); };
  if (std::ranges::none_of(tenants_, is_below)) return;
  std::map<uint32_t, TreeTenant> tree;
  for (const TenantView& view : tenants_) {
    tenants.for_line(view.id, [&](uint32_t slot, const Tenant& tenant) {
      const std::optional<Cap> cap = tenant.cap_on(gpu);
      tree[slot] = {.id = slot,
                    .above = tenant.above.empty() ? std::nullopt : std::optional(tenant.above[0]),
                    .weight = static_cast<double>(tenant.settings.weight),
                    .ceiling = cap ? cap->fraction() : 1};
    });
  }
  for (const auto& [slot, tenant] : tree) tree_.push_back(tenant);
}

void Views::lay_tree_flat() {
  std::vector<bool> active(tenants_.size());
  const auto mark = [&](uint32_t id) {
    const TenantView* const tenant = tenant_of(id);
    if (tenant != nullptr && !tenant->is_frozen_by_user)
      active[static_cast<size_t>(tenant - tenants_.data())] = true;
  };
  for (const ProcessView& process : processes_)
    if (process.has_context && process.wants_gpu && !process.is_frozen_by_user)
      mark(process.tenant);
  for (const JobView& job : jobs_)
    if (job.wants_gpu) mark(job.tenant);
  lay_flat(tree_, active, tenants_);
}

const TenantView* Views::tenant_of(uint32_t id) const {
  const auto at = std::ranges::lower_bound(tenants_, id, {}, &TenantView::id);
  return at == tenants_.end() || at->id != id ? nullptr : &*at;
}

const CapView* Views::cap_of(uint32_t tenant) const {
  const TenantView* const found = tenant_of(tenant);
  return found == nullptr || !found->cap ? nullptr : &*found->cap;
}

}  // namespace gpushare
