// SPDX-License-Identifier: Apache-2.0
// What placing a job needs to know of the GPUs (sched/orders/place.h), from what the agent
// publishes. Pure.
#pragma once

#include <vector>

#include "sched/orders/place.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {

// One for each GPU, ascending. What waits on a GPU is what is left of the jobs that have a process
// on it, each counted once; of a job of which that is unknown, what `mix` expects after the GPU
// time that it has received. Where the GPU does not take turns, each process is a job by itself.
std::vector<PlaceGpu> place_gpus(const PlaneSnapshot& plane, const LengthMix& mix);

}  // namespace gpushare
