// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/driven_gpus.h"

#include <utility>

#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"

namespace gpushare {

bool DrivenGpus::find(const Config& config, ShimProcesses* shims) {
  KmodObserver* const module = parts_.options.simulation ? nullptr : parts_.module.observer();
  auto backend = open_backend(parts_.options.simulation, module);
  if (!backend) {
    const std::string reason = backend.error().message();
    if (reason != std::exchange(no_gpu_reason_, reason)) log_warning("no GPU: {}", reason);
    publish_none();
    return false;
  }
  no_gpu_reason_.clear();
  driven_ = Driven{.backend = std::move(*backend), .scheduler = nullptr};
  if (module != nullptr)
    if (const auto asked = module->replay(); !asked) log_error("{}", asked.error().message());
  driven_->scheduler =
      std::make_unique<Scheduler>(Surroundings{.gpu = *driven_->backend.gpu,
                                               .observer = driven_->backend.observer,
                                               .region = parts_.region,
                                               .processes = parts_.processes,
                                               .clock = parts_.clock,
                                               .tenants = parts_.tenants,
                                               .shims = shims,
                                               .mps = &parts_.mps,
                                               .listener = &parts_.listener,
                                               .lengths = &parts_.lengths,
                                               .driver_calls = DriverCalls::kOnThreads},
                                  parts_.identity, config);
  parts_.module.start_over(gpus(), config);
  log_found(config);
  return true;
}

void DrivenGpus::log_found(const Config& config) const {
  const GpuSupport& support = driven_->backend.gpu->support();
  log_info("{} GPU{}, driver {}, policy {}", gpus().size(), gpus().size() == 1 ? "" : "s",
           support.driver_version, config.policy_names(gpus().size()));
  if (!support.reason.empty()) log_warning("not everything is enforced: {}", support.reason);
  if (!driven_->backend.warning.empty()) log_warning("{}", driven_->backend.warning);
  if (!parts_.options.simulation && driven_->backend.observer != nullptr)
    log_info("programs are seen by {}", observer_name());
}

// The tools see an agent that lives and has nothing to drive.
void DrivenGpus::publish_none() {
  clear_gpus(parts_.region);
  AgentRecord record = record_of(parts_.identity, parts_.clock.now());
  record.tick_us = static_cast<uint32_t>(std::chrono::duration_cast<Micros>(kLookAgain).count());
  no_gpu_reason_.copy(record.observe_only_reason, sizeof record.observe_only_reason - 1);
  write_record(parts_.region.agent, record);
}

const char* DrivenGpus::observer_name() const {
  if (parts_.options.simulation) return "the simulation";
  return own_observer() != nullptr ? "the eBPF probe" : "the kernel module";
}

}  // namespace gpushare
