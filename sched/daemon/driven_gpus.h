// SPDX-License-Identifier: Apache-2.0
// DrivenGpus: the GPUs that the agent drives, found and lost. While there are none the control
// plane says so, and the agent looks for them again. The driver and each GPU are opened on threads
// of their own, because they may hang (joining_gpus.h); everything else is on the agent's one
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sched/daemon/agent.h"
#include "sched/daemon/gpus/backend.h"
#include "sched/daemon/gpus/joining_gpus.h"
#include "sched/daemon/gpus/predecessors.h"
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

  // Looks for GPUs and makes their scheduler as soon as one is open. False: none is, or the driver
  // has not answered within `patience`; a new reason is logged. The driver goes on being opened,
  // and the next call takes what comes of it. `shims` may be null.
  bool find(const Config& config, ShimProcesses* shims, Nanos patience = {});
  // REQUIRES: are_there(). Looks for those that have not been open so far, and lets them join the
  // scheduler. Returns true if one has, or is not expected any more.
  bool find_more();
  // See JoiningGpus::is_expected(). REQUIRES: are_there().
  bool is_expected(uint32_t gpu) const { return driven_->gpus->is_expected(gpu); }
  // When one of the two is due if fd() is not readable before; Time::max(): that is not known.
  Time next() const { return driven_ ? driven_->gpus->next() : Time::max(); }
  // Readable when the driver or a GPU has answered, until find() or find_more() is called.
  int fd() const { return answered_->get(); }
  // REQUIRES: are_there(). Whether none of them has answered for long, so that it is time to give
  // them up and to look for them again. While one hangs at its opening that would only leave one
  // more thread behind in the driver, each time.
  bool are_lost() const { return driven_->scheduler->is_lost() && !driven_->gpus->has_hanging(); }
  // Returns false, and keeps them, if a call of the driver does not come back: their end would wait
  // for it.
  bool lose();

  bool are_there() const { return driven_ && driven_->scheduler != nullptr; }
  // Require are_there().
  Scheduler& scheduler() { return *driven_->scheduler; }
  std::span<const GpuInfo> gpus() const { return driven_->gpus->gpus(); }
  // nullptr where there is none.
  const Gpu* gpu() const { return are_there() ? driven_->gpus.get() : nullptr; }
  Observer* observer() const { return are_there() ? driven_->backend.observer : nullptr; }
  const Observer* own_observer() const {
    return are_there() ? driven_->backend.own.get() : nullptr;
  }
  const State* state() const { return are_there() ? &driven_->scheduler->state() : nullptr; }

  const std::string& no_gpu_reason() const { return no_gpu_reason_; }
  std::string no_observer_reason() const { return are_there() ? driven_->backend.warning : ""; }
  const char* observer_name() const;

 private:
  struct Driven {  // members are destroyed in reverse order
    Backend backend;
    std::unique_ptr<JoiningGpus> gpus;
    std::unique_ptr<Scheduler> scheduler;  // nullptr: none of them is open yet
    std::ptrdiff_t expected = 0;           // GPUs, when it was looked for more of them
  };

  bool find_driver(Nanos patience);
  bool find_one(Nanos patience);
  // Both return false.
  bool say_why_not(std::string reason);
  bool say_what_is_known();
  void forget_answers();
  void publish_none();
  void log_found(const Config& config) const;

  const Parts parts_;
  Predecessors before_;
  std::string no_gpu_reason_;
  Time no_gpu_since_{};                 // of what does not answer
  const std::shared_ptr<Fd> answered_;  // an event; of the threads, too
  Opening<Backend> opening_;
  std::optional<Driven> driven_;
};

}  // namespace gpushare
