// SPDX-License-Identifier: Apache-2.0
// EndedProcesses: asks the driver whether what was left is still there. A program's end takes 0.1 s
// for the driver; but while another process, a child for example, has its descriptors open, what
// lies in its streams goes on. One thread, the scheduler's; questions are asked on a thread of
// their own, or in step.
#pragma once

#include <future>
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
  EndedProcesses(Gpu& gpu, Registry& registry, const Clock& clock, DriverCalls calls)
      : gpu_(gpu), registry_(registry), clock_(clock), calls_(calls) {}
  // Waits for the question that is under way.
  ~EndedProcesses();
  EndedProcesses(const EndedProcesses&) = delete;
  EndedProcesses& operator=(const EndedProcesses&) = delete;

  // To be called in each step. Takes from the registry what the driver has no more, and asks again:
  // at once after an end, then with pauses that grow to a second.
  void look();
  // Waits until no question is under way, but not longer. Returns false when one is.
  bool rest(Nanos patience) const;
  // When look() wants to be called next; Time::max(): not before something else is left.
  Time next() const;
  // Whether it has ended longer ago than the driver needs, and is still there.
  static bool remains(const Process& process, Time now) {
    return process.ended && now - *process.ended > kTakenDown;
  }

 private:
  using Answer = Result<std::vector<ObjectRef>>;

  void ask();
  void take(const Answer& answer);

  Gpu& gpu_;
  Registry& registry_;
  const Clock& clock_;
  const DriverCalls calls_;
  std::vector<ObjectRef> asked_;
  std::future<Answer> answer_;         // invalid: no question is under way
  uint64_t leavings_ = 0, as_of_ = 0;  // of the registry, when it was asked last
  Time next_{};
  Nanos pause_{};
  bool has_warned_ = false;
};

}  // namespace gpushare
