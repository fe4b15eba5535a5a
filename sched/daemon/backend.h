// SPDX-License-Identifier: Apache-2.0
// Backend: the GPUs that the agent drives: the machine's, through the NVIDIA driver, or simulated
// ones. This is the one place in sched/ that knows the difference. A driver may hang when it is
// opened, so the agent and the supervisor have that done on a thread of its own (Opening).
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "intercept/gpu.h"
#include "intercept/lineage.h"
#include "intercept/observer.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct Backend {
  std::unique_ptr<Gpu> gpu;
  Observer* observer = nullptr;  // nullptr: nothing tells of new processes, and `warning` says why
  std::string warning;
  std::unique_ptr<Observer> own;  // owns `observer`, unless that is the module's
};

// `simulation`: the socket of gpushare-sim; nullopt: the NVIDIA driver. `module`: the kernel
// module's observer, which outlives the backend; nullptr: the module does not see the driver, and
// the eBPF probe is loaded. The observer starts before the GPUs are opened, so that a process that
// comes meanwhile is in its events, in gpu->users(), or in both. Error: there is no usable GPU.
Result<Backend> open_backend(const std::optional<std::string>& simulation, Observer* module);

// What follows forks, for real and simulated GPUs alike: their programs are real processes. Errors
// of BpfLineage::start().
// `region`: the name of the control plane; the next agent of the same name goes on with it.
Result<std::unique_ptr<Lineage>> open_lineage(const std::string& region);

// Opens the GPUs without an observer: enough for recovery.
Result<std::unique_ptr<Gpu>> open_gpu(const std::optional<std::string>& simulation);

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
    answer_ = std::make_shared<Answer>();
    const auto work = [answer = answer_, open = std::move(open), told = told_] {
      Result<T> opened = open();
      {
        const std::lock_guard lock(answer->mutex);
        answer->value = std::move(opened);
      }
      answer->has_come.notify_all();
      told();
    };
    try {
      std::thread(work).detach();
    } catch (const std::system_error&) {
      work();
    }
  }
  bool is_under_way() const { return answer_ != nullptr; }
  Time since() const { return since_; }  // valid while it is under way

  // The answer, once; nullopt: there is none within `patience`, or nothing is under way.
  std::optional<Result<T>> take(Nanos patience = {}) {
    if (answer_ == nullptr) return std::nullopt;
    std::optional<Result<T>> value;
    {
      std::unique_lock lock(answer_->mutex);
      answer_->has_come.wait_for(lock, patience, [this] { return answer_->value.has_value(); });
      value = std::exchange(answer_->value, std::nullopt);
    }
    if (value) answer_.reset();
    return value;
  }

 private:
  struct Answer {
    std::mutex mutex;
    std::condition_variable has_come;
    std::optional<Result<T>> value;
  };

  const std::function<void()> told_;
  std::shared_ptr<Answer> answer_;  // nullptr: nothing is under way
  Time since_{};
};

}  // namespace gpushare
