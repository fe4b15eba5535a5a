// SPDX-License-Identifier: Apache-2.0
// Gpu and Observer over two connections to gpushare-sim, for an agent that runs on simulated GPUs.
// A call takes as long as the driver would, and some tens of microseconds for the socket. Threads:
// as gpu.h says.
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

// Connects the observer first, so that a process which starts during this call is in its events or
// in gpu->users(), or in both. Error operation_not_permitted when the caller is neither root nor
// the server's user. When the server goes away, later calls fail with connection_reset.
Result<Simulation> make_sim(const std::string& socket);

// Connects the Gpu alone, for who needs no events.
Result<std::unique_ptr<Gpu>> make_sim_gpu(const std::string& socket);

// The same, but no GPU is open yet (Gpu::open()).
Result<Simulation> list_sim(const std::string& socket);
Result<std::unique_ptr<Gpu>> list_sim_gpus(const std::string& socket);

}  // namespace gpushare::sim
