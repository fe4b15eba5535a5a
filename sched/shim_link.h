// SPDX-License-Identifier: Apache-2.0
// ShimLink: the agent's side of the processes that have the shim: gives them their slots, says by
// its beat that the agent lives, and carries SM partitions to them (spatial.h). One thread, the
// agent's; never blocks.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "intercept/shim/host.h"
#include "sched/proc_reader.h"
#include "sched/registry.h"
#include "sched/rules.h"
#include "sched/spatial.h"
#include "sched/tenants.h"

namespace gpushare {

class ShimLink {
 public:
  // `tenants` and `processes` outlive it. Errors of ShimHost::listen().
  static Result<std::unique_ptr<ShimLink>> listen(const std::string& path, const Tenants& tenants,
                                                  const ProcReader& processes);

  // Readable when a process asks for its slot: serve() is due.
  int fd() const { return host_->fd(); }
  void serve() { host_->serve(); }

  // The GPUs that are shared spatially from now on. Processes that came before keep what they have,
  // are moved no more, and go in if they stand at their gate.
  void set_gpus(std::span<const GpuInfo> gpus);

  // Returns when to call again. `registry`: nullptr: there is no GPU.
  Time step(Time now, const Registry* registry);

  SmPart part(uint32_t tenant, uint32_t gpu) const { return spatial_.part(tenant, gpu); }

 private:
  ShimLink(const Tenants& tenants, const ProcReader& processes)
      : tenants_(tenants), processes_(processes) {}
  ShimWish decide(const ProcessId& process);
  uint32_t tenant_of(const ProcessId& process);
  std::vector<Spatial::Client> clients(const Registry* registry);

  const Tenants& tenants_;
  const ProcReader& processes_;
  Spatial spatial_{{}};
  std::map<ProcessId, ProcessFacts> facts_;  // of those with a slot
  std::unique_ptr<ShimHost> host_;
};

}  // namespace gpushare
