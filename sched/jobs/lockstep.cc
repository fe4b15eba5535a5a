// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/lockstep.h"

#include <algorithm>

namespace gpushare {

int64_t Lockstep::Behind::usual() const {
  const std::size_t known = std::min(count, kSeen);
  int64_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < known; ++i) {
    const auto times =
        std::count(seen.begin(), seen.begin() + static_cast<int64_t>(known), seen[i]);
    if (times > most) {
      most = times;
      best = seen[i];
    }
  }
  return best;
}

void Lockstep::see(const Counts& counts) {
  if (counts.empty()) return behind_.clear();
  if (counts.front().first != first_) {
    first_ = counts.front().first;
    behind_.clear();
  }
  std::erase_if(behind_, [&](const auto& entry) {
    return !std::ranges::binary_search(counts, entry.first, {}, &Counts::value_type::first);
  });
  for (const auto& [process, begun] : counts) {
    Behind& behind = behind_[process];
    behind.seen[behind.count++ % kSeen] = static_cast<int64_t>(counts.front().second - begun);
  }
}

std::vector<uint64_t> Lockstep::stops(const Counts& counts) const {
  const auto usual = [&](const ProcessId& process) {
    const auto known = behind_.find(process);
    return known == behind_.end() ? int64_t{0} : known->second.usual();
  };
  // In the first one's count: the furthest that any has begun.
  uint64_t furthest = 0;
  for (const auto& [process, begun] : counts)
    furthest = std::max(furthest, begun + static_cast<uint64_t>(usual(process)));
  std::vector<uint64_t> stops;
  for (const auto& [process, begun] : counts) {
    const uint64_t agreed = furthest - static_cast<uint64_t>(usual(process));
    stops.push_back(agreed > begun && agreed - begun <= kMostAhead ? agreed : begun);
  }
  return stops;
}

}  // namespace gpushare
