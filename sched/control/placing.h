// SPDX-License-Identifier: Apache-2.0
// What placing a job needs to know of the GPUs (sched/orders/place.h), from what the agent
// publishes. Pure.
#pragma once

#include <vector>

#include "sched/orders/place.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {

// One for each GPU, ascending. Each process on a GPU counts as a job of which only its GPU time is
// known, unless its record says what is left of its job; several of one job count once.
std::vector<PlaceGpu> place_gpus(const PlaneSnapshot& plane, const LengthMix& mix);

}  // namespace gpushare
