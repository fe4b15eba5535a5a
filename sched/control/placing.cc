// SPDX-License-Identifier: Apache-2.0
#include "sched/control/placing.h"

#include <algorithm>

namespace gpushare {

std::vector<PlaceGpu> place_gpus(const PlaneSnapshot& plane, const LengthMix& mix) {
  std::vector<PlaceGpu> gpus;
  for (const GpuRecord& record : plane.gpus) {
    PlaceGpu& gpu = gpus.emplace_back(PlaceGpu{.index = record.index});
    if (record.memory_bytes != kUnknown64) {
      const uint64_t used = record.memory_used_bytes == kUnknown64 ? 0 : record.memory_used_bytes;
      gpu.free_bytes = record.memory_bytes - std::min(used, record.memory_bytes);
    }
  }
  for (const Numbered<ProcessRecord>& process : plane.processes) {
    const auto gpu = std::ranges::find(gpus, process.record.gpu, &PlaceGpu::index);
    if (gpu != gpus.end()) gpu->waiting += mix.index(Nanos(process.record.gpu_time_ns));
  }
  return gpus;
}

}  // namespace gpushare
