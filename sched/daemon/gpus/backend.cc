// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/gpus/backend.h"

#include "intercept/bpf/lineage.h"
#include "intercept/bpf/observer.h"
#include "intercept/nvrm/rm_gpu.h"
#include "intercept/sim/gpu/remote_gpu.h"

namespace gpushare {

Result<std::unique_ptr<Gpu>> list_gpus(const std::optional<std::string>& simulation) {
  if (simulation) return sim::list_sim_gpus(*simulation);
  return list_rm_gpus(RmUse::kRecovery);
}

Result<Backend> open_backend(const std::optional<std::string>& simulation, Observer* module) {
  Backend backend;
  if (simulation) {
    auto opened = sim::list_sim(*simulation);
    if (!opened) return std::unexpected(opened.error());
    backend.gpu = std::move(opened->gpu);
    backend.own = std::move(opened->observer);
    backend.observer = backend.own.get();
    return backend;
  }
  // Before the probe is loaded: who waits for a driver looks often.
  if (const auto found = look_for_driver(); !found) return std::unexpected(found.error());
  backend.observer = module;
  if (module == nullptr) {
    auto probe = BpfObserver::start();
    if (!probe) backend.warning = probe.error().message();
    if (probe) backend.own = std::move(*probe);
    backend.observer = backend.own.get();
  }
  auto gpu = list_rm_gpus(RmUse::kAgent);
  if (!gpu) return std::unexpected(gpu.error());
  backend.gpu = std::move(*gpu);
  return backend;
}

Result<std::unique_ptr<Lineage>> open_lineage(const std::string& region) {
  auto lineage = BpfLineage::start(BpfLineage::folder_of(region));
  if (!lineage) return std::unexpected(lineage.error());
  return std::move(*lineage);
}

}  // namespace gpushare
