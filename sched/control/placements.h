// SPDX-License-Identifier: Apache-2.0
// Placements: who was told on which GPU to run, and has nothing there yet. A program of PyTorch
// takes seconds to its first context; without this all programs that are started meanwhile would
// go to the same GPU. One thread, the agent's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sched/orders/place.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Placements {
 public:
  struct Placed {
    ProcessId process{};
    uint32_t gpu = 0;
    double length = 0;  // ns
    uint64_t bytes = 0;
    Time since{};
  };
  // Replaces what was said to this process before. Of more than 4096 the oldest is forgotten.
  void note(const Placed& placed);
  // Adds to each GPU the work and the memory of those that are on their way to it. Those of which
  // `has_come` says that they are there, or gone, are forgotten, and those that show nothing for
  // ten minutes.
  void add_to(std::vector<PlaceGpu>& gpus, Time now,
              const std::function<bool(const ProcessId&)>& has_come);

 private:
  std::vector<Placed> placed_;  // in the order in which it was said
};

}  // namespace gpushare
