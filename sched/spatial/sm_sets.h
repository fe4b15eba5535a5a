// SPDX-License-Identifier: Apache-2.0
// SmSets: which set of SM groups each tenant of one GPU runs in, now and on the way to another;
// several tenants may run in one. Above it a policy plans which tenants share; below it SmPartition
// keeps the sets apart. Pure; on the agent's one thread. A tenant that changes sets is told so and
// says when it has: until then it runs in the old one, which keeps its groups, and then for a
// moment in both. So no group is told to a tenant while one of another set may run there. One
// assignment is on its way to a tenant at a time.
//   A and B have a set each, 10 and 5 groups; now they are to share 12:
//     plan -> assigned: B 0-9          (A's set; B's 5 groups are still B's until B answers)
//     confirm(B) -> assigned: A 0-11, B 0-11
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sched/spatial/sm_partition.h"

namespace gpushare {

struct PlannedSet {
  std::vector<uint32_t> tenants;  // that share it; at least one, and each in one set
  uint32_t groups = 1;            // at least 1
  bool is_idle = false;           // see PlannedHolder
  bool can_borrow = true;
  uint32_t least = 1;  // see PlannedHolder

  bool operator==(const PlannedSet&) const = default;
};

struct SetSize {
  uint32_t entitled = 0;  // see HolderSize
  uint32_t target = 0;
  uint32_t sharers = 1;  // tenants in the set
  uint32_t set = 0;      // its number, which no other one has or had

  bool operator==(const SetSize&) const = default;
};

class SmSets {
 public:
  explicit SmSets(const SmGeometry& geometry) : partition_(geometry) {}

  // From now on; tenants that are not named have ended. What comes of it, by tenant. A set goes to
  // those planned together of which most are in it already.
  std::map<uint32_t, SetSize> plan(std::span<const PlannedSet> planned);

  // What to tell now; each assignment once.
  std::vector<Assignment> take_assignments();
  // `groups` is what the tenant now uses. Anything but the answer to its last assignment is
  // ignored.
  void confirm(uint32_t tenant, SmGroups groups);

  // All groups that it may be using; 0: none, or unknown.
  SmGroups in_use(uint32_t tenant) const;
  SmGroups assigned(uint32_t tenant) const;  // what it was told last
  // All have confirmed, and have what was planned.
  bool is_settled() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Tenant {
    uint32_t planned = kNone;  // set
    uint32_t told = kNone;     // set
    uint32_t resides = kNone;  // set; another than `told` until it has confirmed
    SmGroups assigned = 0, confirmed = 0;
    bool is_asked = false;  // an assignment is on its way
  };

  struct Vote {
    uint32_t count = 0;
    int groups = 0;
    std::size_t place = 0;  // in the plan
    uint32_t set = 0;
  };

  std::vector<Vote> votes(std::span<const PlannedSet> planned, uint32_t Tenant::* member) const;
  std::vector<uint32_t> choose_sets(std::span<const PlannedSet> planned);
  bool is_inhabited(uint32_t set) const;
  void settle_sets();

  SmPartition partition_;
  std::map<uint32_t, Tenant> tenants_;
  std::vector<uint32_t> sets_;  // that the partition has
  uint32_t next_set_ = 0;
};

}  // namespace gpushare
