// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_link.h"

#include <algorithm>
#include <filesystem>

#include "sched/slo/claims.h"
#include "sched/tenants/identity.h"
#include "shmctl/base/log.h"

namespace gpushare {

Result<std::unique_ptr<ShimLink>> ShimLink::listen(const std::string& path, const Tenants& tenants,
                                                   const ProcReader& processes) {
  std::unique_ptr<ShimLink> link(new ShimLink(tenants, processes));
  auto host = ShimHost::listen(
      path, [link = link.get()](const ProcessId& process, uid_t) { return link->decide(process); });
  if (!host) return std::unexpected(host.error());
  link->host_ = std::move(*host);
  return link;
}

void ShimLink::set_gpus(std::span<const GpuInfo> gpus, const SloSetup& slo) {
  open_knees(slo);
  gpus_.clear();
  for (const GpuInfo& gpu : gpus) gpus_.push_back(gpu.index);
  const auto make = [&](const GpuInfo& gpu,
                        const SmGeometry& geometry) -> std::unique_ptr<SmClaims> {
    if (!slo.gpus.contains(gpu.index)) return make_share_claims(gpu, geometry);
    return std::make_unique<SloClaims>(gpu, geometry, knees_ ? &*knees_ : nullptr);
  };
  if (spatial_.is_of(gpus)) return spatial_.set_claims(make);
  spatial_ = Spatial(gpus, make);
  // Those that no longer fit are nobody's to let in.
  for (const ProcessId& process : host_->processes()) ShimHost::open_gate(*host_->find(process));
}

// Without them every program is learnt anew: no reason to do less.
void ShimLink::open_knees(const SloSetup& slo) {
  const std::string path = slo.gpus.empty() ? "" : slo.knees;
  if (path == knees_path_) return;
  spatial_.set_claims(make_share_claims);  // they hold the old ones
  knees_.reset();
  knees_path_ = path;
  if (path.empty()) return;
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
  auto opened = KneeStore::open(path);
  if (!opened) return log_warning("knees are not kept: {}", opened.error().message());
  knees_ = std::move(*opened);
}

ShimRequest ShimLink::decide(const ProcessId& process) {
  identities_[process] = identity_of(process, processes_);
  const uint32_t tenant = tenant_of(process);
  closed_.erase(process);  // it gets a new slot
  ShimRequest wish = spatial_.wish(tenant, tenants_.at(tenant)->settings);
  if (wish.features != 0 && mps_ != nullptr) wish.mps_pipe = mps_->pipe_for(process);
  return wish;
}

uint32_t ShimLink::tenant_of(const ProcessId& process) {
  return tenants_.place_of(identities_[process]);
}

std::vector<Spatial::Client> ShimLink::clients(const Registry* registry) {
  std::vector<Spatial::Client> clients;
  for (const ProcessId& process : host_->processes()) {
    ShimSlot* const slot = host_->find(process);
    if (!spatial_.fits(*slot)) continue;
    Spatial::Client& client = clients.emplace_back();
    client.process = process;
    client.tenant = tenant_of(process);
    client.slot = slot;
    if (const auto identity = identities_.find(process); identity != identities_.end())
      client.command_line = identity->second.command_line;
    const Process* known = registry == nullptr ? nullptr : registry->find(process.pid);
    if (known == nullptr || known->id != process) continue;
    for (const Holder& holder : known->holders) client.gpus.push_back(holder.gpu);
  }
  return clients;
}

Time ShimLink::step(Time now, const Registry* registry) {
  host_->beat(now);
  const std::vector<Spatial::Client> present = clients(registry);
  std::erase_if(identities_,
                [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  const Time next = spatial_.step(now, present, tenants_);
  return std::min(next, enforce_caps(now, present));
}

// A client whose context nobody has seen yet may be on any of them.
Time ShimLink::enforce_caps(Time now, std::span<const Spatial::Client> present) {
  std::vector<ShimCaps::Client> gated;
  for (const Spatial::Client& client : present) {
    if (region_ == nullptr || !is_gated(client.process)) continue;
    gated.push_back({.process = client.process,
                     .tenant = client.tenant,
                     .gpus = client.gpus.empty() ? gpus_ : client.gpus,
                     .launches = launches_of(*client.slot)});
    std::erase_if(gated.back().gpus,
                  [&](uint32_t gpu) { return std::ranges::find(gpus_, gpu) == gpus_.end(); });
  }
  const Time next = caps_.step(now, gated, [&](uint32_t tenant, uint32_t gpu) {
    std::optional<ShimCaps::Budget> budget;
    if (gpu >= kMaxGpus) return budget;
    const std::optional<Cap>& cap = tenants_.at(tenant)->settings.cap;
    TokenBucket& bucket = region_->tenants[tenant].buckets[gpu];
    if (cap && bucket.is_enabled())
      budget = {.cap = {.fraction = cap->fraction(),
                        .period = cap->period,
                        .burst = cap->quota,
                        .tokens = {}},
                .bucket = &bucket};
    return budget;
  });
  for (const Spatial::Client& client : present) {
    const bool is_open = (client.slot->gate.load(std::memory_order_relaxed) & 1) == 0;
    if (caps_.is_shut(client.process)) {
      if (!is_open) continue;  // also: it has not been let in yet
      closed_.insert(client.process);
      ShimHost::close_gate(*client.slot);
    } else if (closed_.erase(client.process) > 0) {
      ShimHost::open_gate(*client.slot);
    }
  }
  std::erase_if(closed_, [&](const ProcessId& process) { return host_->find(process) == nullptr; });
  return next;
}

}  // namespace gpushare
