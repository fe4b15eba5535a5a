// SPDX-License-Identifier: Apache-2.0
// Observer: a source of DriverEvents. The agent waits on fd() and then calls drain(); all calls
// come from its thread. There are three: kmod/observer for the real driver with the kernel module,
// bpf/observer for the real driver without it, and sim/gpu/sim_observer for the simulated GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "intercept/event.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

class Observer {
 public:
  using Sink = std::function<void(DriverEvent&&)>;

  virtual ~Observer() = default;
  // Readable (POLLIN) when events may be pending. The observer owns it and never changes it.
  virtual int fd() const = 0;
  // Hands pending events to `sink`, about `most` at most, and returns how many there were. Does not
  // wait, neither for events nor for the driver. When it returns `most` or more, others may be
  // pending, of which fd() need not tell.
  virtual Result<uint64_t> drain(const Sink& sink, uint64_t most) = 0;
  // The same for all that are pending; a source that never rests keeps it busy for ever.
  Result<uint64_t> drain(const Sink& sink) {
    uint64_t count = 0;
    const Sink counting = [&](DriverEvent&& event) { ++count, sink(std::move(event)); };
    while (true) {
      const Result<uint64_t> drained = drain(counting, UINT64_MAX);
      if (!drained || *drained < UINT64_MAX) return drained ? count : drained;
    }
  }
  // How many events were lost since the start because a buffer was full.
  virtual uint64_t dropped() const = 0;
  // What processes said of themselves that the driver's resource manager contradicts; it is not
  // handed out.
  struct FalseClaims {
    uint64_t count = 0;  // since the start
    ProcessId last;      // who made the last one; all zero: none
  };
  virtual FalseClaims false_claims() const { return {}; }
  // Makes the source report the end of a process that Gpu::attach() found and whose beginning it
  // did not see; it makes no ProcessOpened for it. Error no_such_process when it has ended already;
  // after any other error its end is not reported, and the call may be tried again.
  virtual Result<> watch(ProcessId) { return {}; }
};

}  // namespace gpushare
