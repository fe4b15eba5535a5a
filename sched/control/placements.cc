// SPDX-License-Identifier: Apache-2.0
#include "sched/control/placements.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr Nanos kExpected = std::chrono::minutes(10);
constexpr std::size_t kMostPlaced = 4096;

}  // namespace

void Placements::note(const Placed& placed) {
  std::erase_if(placed_, [&](const Placed& one) { return one.process == placed.process; });
  if (placed_.size() >= kMostPlaced) placed_.erase(placed_.begin());
  placed_.push_back(placed);
}

void Placements::add_to(std::vector<PlaceGpu>& gpus, Time now,
                        const std::function<bool(const ProcessId&)>& has_come) {
  std::erase_if(placed_, [&](const Placed& one) {
    return now - one.since >= kExpected || has_come(one.process);
  });
  for (const Placed& one : placed_) {
    const auto gpu = std::ranges::find(gpus, one.gpu, &PlaceGpu::index);
    if (gpu == gpus.end()) continue;
    gpu->waiting += std::max(one.length, 0.0);
    gpu->free_bytes -= std::min(one.bytes, gpu->free_bytes);
  }
}

}  // namespace gpushare
