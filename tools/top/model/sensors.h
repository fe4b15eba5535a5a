// SPDX-License-Identifier: Apache-2.0
// Sensors is the seam to what a GPU says of itself beside the agent: power, temperature, clocks and
// all of the memory that is in use. NvmlSensors (nvml_sensors.h) asks NVIDIA's management library
// (libnvidia-ml.so.1), which is loaded if it is there; tests have sensors of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shmctl/plane/layout.h"

namespace gpushare {

// A value that is not known is kUnknown32 or kUnknown64.
struct GpuSensors {
  uint32_t power_mw = kUnknown32;
  uint32_t power_limit_mw = kUnknown32;
  uint32_t temperature_c = kUnknown32;
  uint32_t sm_clock_mhz = kUnknown32;
  uint64_t memory_used_bytes = kUnknown64;  // by all, also by what has no context
};

struct SensorsLook {
  bool has_library = false;        // false: there is no NVML, or it does not start
  std::vector<GpuSensors> gpus{};  // in the order that was asked for
};

class Sensors {
 public:
  virtual ~Sensors() = default;
  // The UUIDs as NVML writes them ("GPU-..."). It does not wait for a GPU.
  virtual SensorsLook read(const std::vector<std::string>& uuids) = 0;
};

}  // namespace gpushare
