// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/occupancy.h"

#include <strings.h>

#include <atomic>
#include <iterator>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {
#define GS_NAME(name, parameters) #name,
    GS_OCCUPANCY_FUNCTIONS(GS_NAME)
#undef GS_NAME
};

constinit OccupancyDriver found{};
constinit std::atomic<Lookup> state{Lookup::kNotYet};
static_assert(sizeof found == sizeof(void*) * std::size(kNames));

}  // namespace

const OccupancyDriver* occupancy_driver() {
  const Lookup now = fill_table(state, reinterpret_cast<void**>(&found), kNames, std::size(kNames),
                                std::size(kNames));
  return now == Lookup::kComplete ? &found : nullptr;
}

int place_in_slot(const OccupancyDriver& driver, CUdevice device) {
  char pci[32] = {};
  if (driver.cuDeviceGetPCIBusId(pci, sizeof pci, device) != CUDA_SUCCESS) return -1;
  const ShimSlot& mine = slot();
  const uint32_t gpus = mine.head.gpu_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < gpus && i < kShimGpus; ++i)
    if (::strncasecmp(mine.gpus[i].pci, pci, sizeof mine.gpus[i].pci) == 0)
      return static_cast<int>(i);
  return -1;
}

}  // namespace gpushare::shim
