// SPDX-License-Identifier: Apache-2.0
#include "sched/step/buckets.h"

#include <algorithm>

namespace gpushare {

void configure_buckets(Region& region, const Tenants& tenants, uint32_t gpus, Time now) {
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    const Tenant* const tenant = tenants.at(slot);
    for (uint32_t gpu = 0; gpu < std::min(gpus, uint32_t{kMaxGpus}); ++gpu) {
      TokenBucket& bucket = region.tenants[slot].buckets[gpu];
      if (tenant != nullptr && tenant->settings.cap && tenant->settings.cap->binds()) {
        const Cap& cap = *tenant->settings.cap;
        bucket.configure(cap.quota, cap.period, cap.quota, now);
      } else if (bucket.is_enabled()) {
        bucket.disable();
      }
    }
  }
}

void refill_buckets(Region& region, const Tenants& tenants, uint32_t gpus, Time now) {
  for (const uint32_t slot : tenants.slots()) {
    const auto& cap = tenants.at(slot)->settings.cap;
    if (!cap || !cap->binds()) continue;
    for (uint32_t gpu = 0; gpu < std::min(gpus, uint32_t{kMaxGpus}); ++gpu)
      region.tenants[slot].buckets[gpu].refill(now);
  }
}

void disable_buckets(Region& region) {
  for (TenantSlot& tenant : region.tenants)
    for (TokenBucket& bucket : tenant.buckets)
      if (bucket.is_enabled()) bucket.disable();
}

}  // namespace gpushare
