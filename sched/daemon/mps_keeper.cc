// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/mps_keeper.h"

#include <optional>
#include <utility>

#include "sched/tenants/identity.h"

namespace gpushare {

// Simulated GPUs have no MPS, unless a program that stands in for it is named.
MpsLink* MpsKeeper::want(const MpsConfig& config, std::vector<GpuInfo> spatial, std::size_t all,
                         Time now) {
  const bool has_none = !config.is_ours || (is_simulated_ && config.program.empty());
  if (has_none || config != config_) link_.reset();
  if (has_none || (spatial.empty() && link_ == nullptr)) return nullptr;
  if (link_ == nullptr) {
    MpsPaths paths{.pipe_directory = folder_ + "/mps", .log_directory = folder_ + "/mps-log"};
    if (!config.program.empty()) paths.program = config.program;
    config_ = config;
    const auto describe = [this](const ProcessId& process) {
      const ProcessIdentity identity = identity_of(process, processes_);
      return MpsClient{.process = process,
                       .tenant = tenants_.at(tenants_.place_of(identity))->name,
                       .command = identity.command};
    };
    link_ = std::make_unique<MpsLink>(make_mps_host(paths), describe);
  }
  link_->want(spatial.empty() ? std::nullopt : std::optional(mps_gpus(std::move(spatial), all)),
              config.has_all_users);
  link_->step(now);  // before the next program comes
  return link_.get();
}

}  // namespace gpushare
