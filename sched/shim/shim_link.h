// SPDX-License-Identifier: Apache-2.0
// ShimLink: the agent's side of the processes that have the shim: gives them their slots, says by
// its beat that the agent lives, and carries SM partitions to them (sched/spatial/orders.h). One
// thread, the agent's; never blocks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sched/mps/link.h"
#include "sched/shim/shim_caps.h"
#include "sched/slo/knees/store.h"
#include "sched/spatial/orders.h"
#include "sched/step/registry.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/rules.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"
#include "shmctl/shim/host.h"

namespace gpushare {

// On which GPUs the policy `slo` runs, by index, and where it keeps what it has found of programs;
// an empty path: nowhere.
struct SloSetup {
  std::set<uint32_t> gpus{};
  std::string knees{};
};

class ShimLink {
 public:
  // `tenants` and `processes` outlive it. Errors of ShimHost::listen().
  static Result<std::unique_ptr<ShimLink>> listen(const std::string& path, const Tenants& tenants,
                                                  const ProcReader& processes);

  // Readable when a process asks for its slot: serve() is due.
  int fd() const { return host_->fd(); }
  void serve() { host_->serve(); }

  // The GPUs that are shared spatially from now on. If they are others than before: processes that
  // came before keep what they have, are moved no more, and go in if they stand at their gate.
  void set_gpus(std::span<const GpuInfo> gpus, const SloSetup& slo = {});

  // Programs that come from now on become clients of its server; nullptr: of none. Outlives us, or
  // the next call.
  void set_mps(MpsLink* mps) { mps_ = mps; }

  // Tokens of a tenant with a cap are in here. Outlives us.
  void set_region(Region& region) { region_ = &region; }
  // Does its cap close its gate, so that it is not to be stopped for it?
  bool is_gated(const ProcessId& process) const {
    return mps_ != nullptr && mps_->is_client(process) && host_->find(process) != nullptr;
  }

  // Returns when to call again. `registry`: nullptr: there is no GPU.
  Time step(Time now, const Registry* registry);

  SmPart part(uint32_t tenant, uint32_t gpu) const { return spatial_.part(tenant, gpu); }

 private:
  ShimLink(const Tenants& tenants, const ProcReader& processes)
      : tenants_(tenants), processes_(processes) {}
  ShimRequest decide(const ProcessId& process);
  uint32_t tenant_of(const ProcessId& process);
  void open_knees(const SloSetup& slo);
  std::vector<Spatial::Client> clients(const Registry* registry);
  Time enforce_caps(Time now, std::span<const Spatial::Client> present);

  const Tenants& tenants_;
  const ProcReader& processes_;
  MpsLink* mps_ = nullptr;
  Region* region_ = nullptr;
  ShimCaps caps_;
  std::set<ProcessId> closed_;  // gates, by us, for a cap
  std::vector<uint32_t> gpus_;  // that are shared spatially, by index
  std::optional<KneeStore> knees_;
  std::string knees_path_;
  Spatial spatial_{{}};                              // its rules use the knees
  std::map<ProcessId, ProcessIdentity> identities_;  // of those with a slot
  std::unique_ptr<ShimHost> host_;
};

}  // namespace gpushare
