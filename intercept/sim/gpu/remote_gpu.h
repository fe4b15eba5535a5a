// SPDX-License-Identifier: Apache-2.0
// What the agent drives when it runs on simulated GPUs: Gpu and Observer over two connections to
// gpushare-sim. A call takes as long as the driver would, plus the socket (tens of microseconds).
#pragma once

#include <memory>
#include <string>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "shmctl/base/error.h"

namespace gpushare::sim {

struct Simulation {
  std::unique_ptr<Gpu> gpu;
  std::unique_ptr<Observer> observer;
};

// The observer is connected first, so that a process which starts during this call is in its events
// or in gpu->users(), or in both. Afterwards, when the server is gone, calls fail with
// connection_reset. Error operation_not_permitted: neither root nor the server's user.
Result<Simulation> make_sim(const std::string& socket);

// Control alone: for a supervisor, which watches nothing.
Result<std::unique_ptr<Gpu>> make_sim_gpu(const std::string& socket);

}  // namespace gpushare::sim
