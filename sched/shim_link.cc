// SPDX-License-Identifier: Apache-2.0
#include "sched/shim_link.h"

#include <algorithm>

#include "sched/facts.h"

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

void ShimLink::set_gpus(std::span<const GpuInfo> gpus) {
  spatial_ = Spatial(gpus);
  // Those that no longer fit are nobody's to let in.
  for (const ProcessId& process : host_->processes()) ShimHost::open_gate(*host_->find(process));
}

ShimWish ShimLink::decide(const ProcessId& process) {
  facts_[process] = facts_of(process, processes_);
  const uint32_t tenant = tenant_of(process);
  return spatial_.wish(tenant, tenants_.at(tenant)->settings);
}

uint32_t ShimLink::tenant_of(const ProcessId& process) {
  return tenants_.place_of(facts_[process]);
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
    const Process* known = registry == nullptr ? nullptr : registry->find(process.pid);
    if (known == nullptr || known->id != process) continue;
    for (const Holder& holder : known->holders) client.gpus.push_back(holder.gpu);
  }
  return clients;
}

Time ShimLink::step(Time now, const Registry* registry) {
  host_->beat(now);
  const std::vector<Spatial::Client> present = clients(registry);
  std::erase_if(facts_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  return spatial_.step(now, present, tenants_);
}

}  // namespace gpushare
