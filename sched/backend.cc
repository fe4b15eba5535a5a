// SPDX-License-Identifier: Apache-2.0
#include "sched/backend.h"

#include "intercept/sim/remote_gpu.h"

namespace gpushare {

Result<std::unique_ptr<Gpu>> open_gpu(const std::optional<std::string>& simulation) {
  if (simulation) return sim::make_sim_gpu(*simulation);
  return make_error(std::errc::no_such_device, "open the NVIDIA driver");
}

Result<Backend> open_backend(const std::optional<std::string>& simulation) {
  Backend backend;
  if (simulation) {
    auto opened = sim::make_sim(*simulation);
    if (!opened) return std::unexpected(opened.error());
    backend.gpu = std::move(opened->gpu);
    backend.observer = std::move(opened->observer);
    return backend;
  }
  auto gpu = open_gpu(simulation);
  if (!gpu) return std::unexpected(gpu.error());
  backend.gpu = std::move(*gpu);
  return backend;
}

}  // namespace gpushare
