// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/occupancy.h"

#include <strings.h>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {

const OccupancyDriver* occupancy_driver() {
  static constinit DriverTable<OccupancyDriver> table;
  return table.get();
}

CurrentDevice current_device(const OccupancyDriver& driver) {
  CurrentDevice at;
  int sms = 0;
  if (driver.cuCtxGetDevice(&at.device) == CUDA_SUCCESS &&
      driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, at.device) ==
          CUDA_SUCCESS &&
      sms > 0)
    at.sms = sms;
  return at;
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
