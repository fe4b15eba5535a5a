// SPDX-License-Identifier: Apache-2.0
#include "sched/account/buckets.h"

#include <algorithm>

namespace gpushare {

void configure_buckets(Region& region, const Tenants& tenants, uint32_t gpus, Time now) {
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    const Tenant* const tenant = tenants.at(slot);
    for (uint32_t gpu = 0; gpu < std::min(gpus, uint32_t{kMaxGpus}); ++gpu) {
      TokenBucket& bucket = region.tenants[slot].buckets[gpu];
      if (const auto cap = tenant == nullptr ? std::nullopt : tenant->cap_on(gpu)) {
        bucket.configure(cap->quota, cap->period, cap->quota, now);
      } else if (bucket.is_enabled()) {
        bucket.disable();
      }
    }
  }
}

void disable_buckets(Region& region) {
  for (TenantSlot& tenant : region.tenants)
    for (TokenBucket& bucket : tenant.buckets)
      if (bucket.is_enabled()) bucket.disable();
}

}  // namespace gpushare
