// SPDX-License-Identifier: Apache-2.0
// Backend: the GPUs that the agent drives: the machine's, through the NVIDIA driver, or simulated
// ones. This is the one place in sched/ that knows the difference. A driver may hang when it is
// opened, and so may each GPU, so the agent and the supervisor have that done on threads of their
// own (Opening).
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "intercept/gpu.h"
#include "intercept/lineage.h"
#include "intercept/observer.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct Backend {
  std::shared_ptr<Gpu> gpu;      // of which none is open yet
  Observer* observer = nullptr;  // nullptr: nothing tells of new processes, and `warning` says why
  std::string warning;
  std::unique_ptr<Observer> own;  // owns `observer`, unless that is the module's
};

// `simulation`: the socket of gpushare-sim; nullopt: the NVIDIA driver. `module`: the kernel
// module's observer, which outlives the backend; nullptr: the module does not see the driver, and
// the eBPF probe is loaded. The observer starts before the GPUs are listed, so that a process that
// comes meanwhile is in its events, in gpu->users(), or in both. Error: there is no GPU.
Result<Backend> open_backend(const std::optional<std::string>& simulation, Observer* module);

// What follows forks, for real and simulated GPUs alike: their programs are real processes. Errors
// of BpfLineage::start().
// `region`: the name of the control plane; the next agent of the same name goes on with it.
Result<std::unique_ptr<Lineage>> open_lineage(const std::string& region);

// The GPUs without an observer, of which none is open yet: enough for recovery.
Result<std::unique_ptr<Gpu>> list_gpus(const std::optional<std::string>& simulation);

// One call of the functions above, or of the like, on a thread of its own. All functions are called
// on one thread. A thread whose call never returns stays behind, with what it uses.
template <class T>
class Opening {
 public:
  // `told` is called on other threads when there is an answer, also after the end of this object.
  explicit Opening(std::function<void()> told) : told_(std::move(told)) {}

  // REQUIRES: !is_under_way(). Where no thread can be made it waits for the call itself.
  void begin(std::function<Result<T>()> open, Time now) {
    since_ = now;
    answer_ = start_aside<Result<T>>(open, told_);
    if (answer_.valid()) return;
    std::packaged_task<Result<T>()> task(std::move(open));
    answer_ = task.get_future();
    task();
    told_();
  }
  bool is_under_way() const { return answer_.valid(); }
  Time since() const { return since_; }  // valid while it is under way

  // The answer, once; nullopt: there is none within `patience`, or nothing is under way.
  std::optional<Result<T>> take(Nanos patience = {}) {
    if (!answer_.valid() || answer_.wait_for(patience) != std::future_status::ready)
      return std::nullopt;
    return answer_.get();
  }

 private:
  const std::function<void()> told_;
  std::future<Result<T>> answer_;  // invalid: nothing is under way
  Time since_{};
};

}  // namespace gpushare
