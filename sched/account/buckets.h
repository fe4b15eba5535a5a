// SPDX-License-Identifier: Apache-2.0
// The token buckets of the tenants' caps, made as the settings say. They lie in the control plane,
// one for each tenant and GPU. Called by the scheduler, on the agent's one thread.
#pragma once

#include <cstdint>

#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// The buckets of the first `gpus` GPUs as the settings are now.
void configure_buckets(Region& region, const Tenants& tenants, uint32_t gpus, Time now);
// As they are for an agent that has just started: none is in use.
void disable_buckets(Region& region);

}  // namespace gpushare
