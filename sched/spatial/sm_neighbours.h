// SPDX-License-Identifier: Apache-2.0
// SmNeighbours: the sets of SM groups that each tenant of one GPU would have with one group less
// and with one more, as SmPartition would choose: a tenant that shrinks gives up what it got last,
// or a larger last group where another has more then; one that grows takes the lowest free group,
// or when none is free one that another gives up. It is a guess, and nothing is wrong when it is.
// Pure; on the agent's one thread.
//   A has 0-9, B has 10-14 and nothing is free: A's are 0-8 and 0-9,14; B's are 10-13 and 9-14.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sched/policy/sm_geometry.h"

namespace gpushare {

class SmNeighbours {
 public:
  static constexpr std::size_t kMost = 4;
  using Sets = std::array<SmGroups, kMost>;

  explicit SmNeighbours(const SmGeometry& geometry) : geometry_(geometry) {}

  // What each tenant has now, of all tenants there are; several may have the same.
  void update(const std::map<uint32_t, SmGroups>& sets);
  // The smaller one first; 0: none. All 0 for a tenant that update() did not name.
  Sets of(uint32_t tenant) const;

 private:
  using Came = std::vector<uint8_t>;  // groups, in the order in which they were got
  static SmGroups mask(const Came& came);
  uint32_t given_up_next(const Came& came) const;

  const SmGeometry geometry_;
  std::map<uint32_t, Came> tenants_;
};

}  // namespace gpushare
