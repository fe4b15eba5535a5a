// SPDX-License-Identifier: Apache-2.0
// The groups of SMs into which a GPU can be divided. A group is 8 SMs; the last one also has what
// the driver leaves over (measured on an H200 of 132 SMs on 2026-11-22: 15 groups of 8 SMs and 12
// SMs, which are the last group). A partition may consist of any groups. Pure.
#pragma once

#include <cstdint>

namespace gpushare {

using SmGroups = uint64_t;                                                  // bit n: group n
constexpr SmGroups bit_of(uint32_t group) { return SmGroups{1} << group; }  // group: below 64

struct SmGeometry {
  uint32_t groups = 16;  // 1 to 64
  uint32_t sms_per_group = 8;
  uint32_t sms = 132;  // of the GPU: the last group has all that the others leave

  SmGroups last() const { return bit_of(groups - 1); }
  bool is_last_larger() const { return sms > groups * sms_per_group; }
  // The SMs of these groups.
  uint32_t sms_of(SmGroups set) const;
  // The fewest SMs that so many groups can have.
  uint32_t sms_of_count(uint32_t count) const {
    return count == groups ? sms : count * sms_per_group;
  }
};

SmGeometry geometry_of(uint32_t sm_count);
// The nearest number of groups, at least one and at most all: 50 % of 132 SMs are 8 groups, which
// is 64 SMs, or 68 with the last group.
uint32_t groups_of_percent(uint32_t percent, const SmGeometry& geometry);

}  // namespace gpushare
