// SPDX-License-Identifier: Apache-2.0
// DrivenGpus: the GPUs that the agent drives, found and lost. While there are none the control
// plane says so, and the agent looks for them again. The driver is opened on a thread of its own,
// because it may hang; everything else is on the agent's one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sched/daemon/agent.h"
#include "sched/daemon/backend.h"
#include "sched/module/module_link.h"
#include "sched/step/scheduler.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class DrivenGpus {
 public:
  // How often to look for GPUs while there are none.
  static constexpr Nanos kLookAgain = std::chrono::seconds(2);

  // What a scheduler is made of, less what is found. All outlive it.
  struct Parts {
    const AgentOptions& options;
    const AgentIdentity identity;
    Region& region;
    const ProcReader& processes;
    const Clock& clock;
    Tenants& tenants;
    ModuleLink& module;
    const MpsServers& mps;
    Listener& listener;
    LengthHistory& lengths;  // of jobs
  };
  explicit DrivenGpus(const Parts& parts);

  // Looks for GPUs and makes their scheduler. False: there are none, or the driver has not answered
  // within `patience`; a new reason is logged. The driver goes on being opened, and the next call
  // takes what comes of it. `shims` may be null.
  bool find(const Config& config, ShimProcesses* shims, Nanos patience = {});
  // Readable when the driver has answered, until find() is called.
  int fd() const { return answered_->get(); }
  // Returns false, and keeps them, if a call of the driver does not come back: their end would wait
  // for it.
  bool lose();

  bool are_there() const { return driven_.has_value(); }
  // Require are_there().
  Scheduler& scheduler() { return *driven_->scheduler; }
  std::span<const GpuInfo> gpus() const { return driven_->backend.gpu->gpus(); }
  // nullptr where there is none.
  const Gpu* gpu() const { return driven_ ? driven_->backend.gpu.get() : nullptr; }
  Observer* observer() const { return driven_ ? driven_->backend.observer : nullptr; }
  const Observer* own_observer() const { return driven_ ? driven_->backend.own.get() : nullptr; }
  const State* state() const { return driven_ ? &driven_->scheduler->state() : nullptr; }

  const std::string& no_gpu_reason() const { return no_gpu_reason_; }
  std::string no_observer_reason() const { return driven_ ? driven_->backend.warning : ""; }
  const char* observer_name() const;

 private:
  struct Driven {  // members are destroyed in reverse order
    Backend backend;
    std::unique_ptr<Scheduler> scheduler;
  };

  bool say_why_not(std::string reason);
  void publish_none();
  void log_found(const Config& config) const;

  const Parts parts_;
  std::string no_gpu_reason_;
  const std::shared_ptr<Fd> answered_;  // an event; of the threads, too
  Opening<Backend> opening_;
  std::optional<Driven> driven_;
};

}  // namespace gpushare
