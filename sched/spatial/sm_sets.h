// SPDX-License-Identifier: Apache-2.0
// SmSets: which set of SMs each tenant of one GPU runs in, now and on the way to another; several
// may run in one. Above it rules say who shall share (sm_claims.h); below, SmPartition keeps the
// sets apart. Pure: the agent carries orders to the processes and brings back what they say. Called
// by the agent on its one thread.
//
// A tenant that changes sets is told so and says when it has: until then it runs in the old one,
// which keeps its groups, and then for a moment in both. So no group is ever told to a tenant while
// one of another set may run there.
//
//   A and B have a set each, 10 and 5 groups; now they shall share 12:
//     plan -> orders: B 0-9           (A's set; B's 5 groups are still B's until B answers)
//     confirm(B) -> orders: A 0-11, B 0-11
//
// One order is on its way to a tenant at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sched/spatial/sm_partition.h"

namespace gpushare {

struct SetWish {
  std::vector<uint32_t> tenants;  // that share it; at least one, each in one wish
  uint32_t groups = 1;            // at least 1
  bool is_idle = false;           // see PartitionWish
  bool can_borrow = true;

  bool operator==(const SetWish&) const = default;
};

struct SetGrant {
  uint32_t entitled = 0;  // see PartitionGrant
  uint32_t target = 0;
  uint32_t sharers = 1;  // tenants in the set
  uint32_t set = 0;      // its number, which no other one has or had

  bool operator==(const SetGrant&) const = default;
};

struct SetOrder {
  uint32_t tenant = 0;
  SmGroups groups = 0;  // never 0

  bool operator==(const SetOrder&) const = default;
};

class SmSets {
 public:
  explicit SmSets(const SmGeometry& geometry) : partition_(geometry) {}

  // From now on; tenants that are not named have ended. What comes of it, by tenant. A set goes to
  // those wished together of whom most are in it already.
  std::map<uint32_t, SetGrant> plan(std::span<const SetWish> wishes);

  // What to tell now; each order once.
  std::vector<SetOrder> take_orders();
  // `groups` is what the tenant now uses. Anything but the answer to its last order is ignored.
  void confirm(uint32_t tenant, SmGroups groups);

  // All that it may be using; 0: none, or unknown.
  SmGroups in_use(uint32_t tenant) const;
  SmGroups ordered(uint32_t tenant) const;  // what it was told last
  // All have confirmed, and have what they shall have.
  bool is_settled() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Tenant {
    uint32_t wished = kNone;   // set
    uint32_t told = kNone;     // set
    uint32_t resides = kNone;  // set; another than `told` until it has confirmed
    SmGroups order = 0, confirmed = 0;
    bool is_asked = false;  // an order is on its way
  };

  struct Vote {
    uint32_t count = 0;
    int groups = 0;
    std::size_t wish = 0;
    uint32_t set = 0;
  };

  std::vector<Vote> votes(std::span<const SetWish> wishes, uint32_t Tenant::* member) const;
  std::vector<uint32_t> choose_sets(std::span<const SetWish> wishes);
  bool is_inhabited(uint32_t set) const;
  void settle_sets();

  SmPartition partition_;
  std::map<uint32_t, Tenant> tenants_;
  std::vector<uint32_t> sets_;  // that the partition has
  uint32_t next_set_ = 0;
};

}  // namespace gpushare
