// SPDX-License-Identifier: Apache-2.0
// Observer: a source of DriverEvents. The agent waits on fd() and drains; one thread.
// Implementations: kmod/observer (real driver, kernel module), bpf/observer (without the module),
// sim/sim_observer (simulated GPU).
#pragma once

#include <cstdint>
#include <functional>

#include "intercept/event.h"
#include "shmctl/base/error.h"

namespace gpushare {

class Observer {
 public:
  using Sink = std::function<void(DriverEvent&&)>;

  virtual ~Observer() = default;
  // Readable (POLLIN) when events may be pending. Owned by the observer, constant for its life.
  virtual int fd() const = 0;
  // Hands every pending event to `sink`; never blocks. Returns how many.
  virtual Result<uint64_t> drain(const Sink& sink) = 0;
  // Events lost since the start because a buffer was full.
  virtual uint64_t dropped() const = 0;
  // Reports the end of a process whose beginning this source did not see (Gpu::attach() found it),
  // and does not open it again. no_such_process when it has ended already.
  virtual Result<> watch(ProcessId) { return {}; }
};

}  // namespace gpushare
