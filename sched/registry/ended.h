// SPDX-License-Identifier: Apache-2.0
// EndedProcesses: asks the driver for how long those that have ended have something on the GPUs. It
// takes down what a program had in 0.1 s; but while another process, a child for example, has its
// descriptors open, what lies in its streams goes on. One thread, the scheduler's; questions are
// asked on threads of their own, or in step.
#pragma once

#include <future>
#include <memory>
#include <set>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/driver_line.h"
#include "sched/registry/registry.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class EndedProcesses {
 public:
  // For so long after its end the driver may be taking down what a process had: it took 0.1 s on an
  // H200 (driver-facts section 3).
  static constexpr Nanos kTakenDown = std::chrono::milliseconds(300);

  // All outlive it.
  EndedProcesses(Gpu& gpu, Registry& registry, const Clock& clock, DriverCalls calls);
  // Waits for the questions that are under way.
  ~EndedProcesses();
  EndedProcesses(const EndedProcesses&) = delete;
  EndedProcesses& operator=(const EndedProcesses&) = delete;

  // To be called in each step. Forgets those of which the driver has nothing any more, and asks
  // again: at once after an end, then with pauses that grow to a second.
  void look();
  // Waits until no question is under way, but not longer. Returns false when one is.
  bool rest(Nanos patience) const;
  // When look() wants to be called next; Time::max(): not before another one ends.
  Time next() const;
  // Whether it has ended longer ago than the driver needs, and is still there.
  static bool remains(const Process& process, Time now) {
    return process.ended && now - *process.ended > kTakenDown;
  }

 private:
  using Answer = Result<std::vector<pid_t>>;
  struct OnGpu {
    std::set<ProcessId> asked;   // of whom the question under way is
    std::future<Answer> answer;  // invalid: none is
    std::set<ProcessId> known;   // of whom one has been
    Time next{};
    Nanos pause{};
  };

  std::set<ProcessId> on(uint32_t gpu) const;
  void ask(uint32_t gpu, OnGpu& one, std::set<ProcessId> ended);
  void take(uint32_t gpu, OnGpu& one, const Answer& answer);

  Gpu& gpu_;
  Registry& registry_;
  const Clock& clock_;
  const DriverCalls calls_;
  std::vector<OnGpu> gpus_;  // by index
  bool has_warned_ = false;
};

}  // namespace gpushare
