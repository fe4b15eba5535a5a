// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/sm_geometry.h"

#include <algorithm>
#include <bit>

namespace gpushare {

uint32_t SmGeometry::sms_of(SmGroups set) const {
  const auto others = static_cast<uint32_t>(std::popcount(set & ~last()));
  const uint32_t of_last = (set & last()) != 0 ? sms - (groups - 1) * sms_per_group : 0;
  return others * sms_per_group + of_last;
}

SmGeometry geometry_of(uint32_t sm_count) {
  constexpr uint32_t kSmsPerGroup = 8;
  return {.groups = std::clamp(sm_count / kSmsPerGroup, 1U, 64U),
          .sms_per_group = kSmsPerGroup,
          .sms = sm_count};
}

uint32_t groups_of_percent(uint32_t percent, const SmGeometry& geometry) {
  const uint64_t whole = 100ULL * geometry.sms_per_group;
  const uint64_t nearest = (static_cast<uint64_t>(percent) * geometry.sms + whole / 2) / whole;
  return static_cast<uint32_t>(std::clamp<uint64_t>(nearest, 1, geometry.groups));
}

}  // namespace gpushare
