// SPDX-License-Identifier: Apache-2.0
#include "sched/control/placements.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr Nanos kExpected = std::chrono::minutes(10);
constexpr Nanos kLook = std::chrono::seconds(1);  // each asks the system

}  // namespace

void Placements::note(const Placed& placed) {
  forget(placed.process);
  const auto is_own = [&](const Placed& one) { return one.uid == placed.uid; };
  if (static_cast<size_t>(std::ranges::count_if(placed_, is_own)) >= kMostOfUser)
    placed_.erase(std::ranges::find_if(placed_, is_own));
  else if (placed_.size() >= kMost)
    placed_.erase(placed_.begin());
  placed_.push_back(placed);
}

void Placements::forget(const ProcessId& process) {
  std::erase_if(placed_, [&](const Placed& one) { return one.process == process; });
}

void Placements::add_to(std::vector<PlaceGpu>& gpus, Time now, const BytesThere& bytes_there,
                        const IsGone& is_gone) {
  const bool is_due = now - looked_ >= kLook;
  if (is_due) looked_ = now;
  std::erase_if(placed_, [&](Placed& one) {
    const std::optional<uint64_t> there = bytes_there(one);
    one.has_come |= there.has_value();
    if (!there && is_due && is_gone(one.process)) return true;
    if (!one.has_come && now - one.since >= kExpected) return true;
    const auto gpu = std::ranges::find(gpus, one.gpu, &PlaceGpu::index);
    if (gpu == gpus.end()) return false;
    if (!one.has_come) gpu->waiting += std::max(one.length, 0.0);
    const uint64_t still = one.bytes - std::min(there.value_or(0), one.bytes);
    gpu->free_bytes -= std::min(still, gpu->free_bytes);
    return false;
  });
}

}  // namespace gpushare
