// SPDX-License-Identifier: Apache-2.0
// The functions of the driver that say how large its GPUs are and how many blocks of a kernel an SM
// takes, past the wrappers. Any thread.
#pragma once

#include <cstddef>

#include "intercept/shim/driver/driver_types.h"

namespace gpushare::shim {

struct OccupancyDriver {
#define GS_OCCUPANCY_FUNCTIONS(X)                               \
  X(cuCtxGetDevice, (CUdevice*))                                \
  X(cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice)) \
  X(cuDeviceGetPCIBusId, (char*, int, CUdevice))                \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, CUfunction, int, std::size_t))
  GS_FUNCTIONS(GS_OCCUPANCY_FUNCTIONS)
};

// Null: the driver is not loaded, or lacks one of them.
const OccupancyDriver* occupancy_driver();

// The device of the current context, and how many SMs it has; 0: that is not known.
struct CurrentDevice {
  CUdevice device = 0;
  int sms = 0;
};
CurrentDevice current_device(const OccupancyDriver& driver);

// A device's entry in ShimSlot::gpus; -1: the agent does not share it.
int place_in_slot(const OccupancyDriver& driver, CUdevice device);

}  // namespace gpushare::shim
