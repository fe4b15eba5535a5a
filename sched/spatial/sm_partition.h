// SPDX-License-Identifier: Apache-2.0
// SmPartition: which tenant may use which groups of SMs of one GPU, now and on the way to the next
// division. Sets are disjoint at every moment, also while they change: whoever shrinks must have
// said that it has, before anybody gets what it gave up. Pure: the agent carries orders to the
// processes (ShimGpu::wanted) and brings back what they say (ShimGpu::applied). Called by the agent
// on its one thread; O(holders * groups) per change.
//
// A holder is a set of SMs (sm_sets.h says who is in it); it has confirmed an order when everybody
// in it has. Facts (measured on an H200 of 132 SMs, 2026-11-22): the driver splits it into 15
// groups of 8 SMs and leaves 12 SMs, which are the last group; a partition may consist of any
// groups.
//
//   16 groups, the last one larger; A has 15,0-9, B 10-14; now B shall have 8:
//     plan -> orders: A 15,0-6       (B's groups are still A's until A answers)
//     confirm(A) -> orders: B 10-14,7-9
//
// Rules, each of which the tests hold against random requests, deaths and answers that come late or
// never:
//   1. No group is in use by two. "In use" is what a holder has confirmed and what it was told.
//   2. One order is on its way to a holder at a time: an old set cannot be taken for the answer to
//      a newer order.
//   3. A holder that does not answer keeps what it has; all others go on with the rest.
//   4. Every holder that fits has at least one group, also while it lends the others: it can always
//      launch, and what it lent comes back in one round of orders.
//   5. Nothing moves but what must: a holder gives up what it got last, and never swaps.
//   6. A last group that is larger than the others goes first to who shall have most: to the others
//      it would be too much.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpushare {

using SmGroups = uint64_t;  // bit n: group n

struct SmGeometry {
  uint32_t groups = 16;  // at most 64
  uint32_t sms_per_group = 8;
  uint32_t sms = 132;  // of the GPU: the last group has all that the others leave

  SmGroups last() const { return SmGroups{1} << (groups - 1); }
  bool is_last_larger() const { return sms > groups * sms_per_group; }
  // What a set has, and what so many groups have at least.
  uint32_t sms_of(SmGroups set) const;
  uint32_t sms_of_count(uint32_t count) const {
    return count == groups ? sms : count * sms_per_group;
  }
};

// As the driver splits it, and Partitions of the shim joins what it leaves.
SmGeometry geometry_of(uint32_t sm_count);
// Nearest number of groups, at least one, at most all: 50 % of 132 SMs are 8 groups (64 SMs, or 68
// with the last).
uint32_t groups_of_percent(uint32_t percent, const SmGeometry& geometry);

struct PartitionWish {
  uint32_t holder = 0;
  uint32_t groups = 1;      // at least 1
  bool is_idle = false;     // lends all but one group
  bool can_borrow = true;   // takes what others lend and nobody asked for
  bool is_leaving = false;  // keeps what it has until remove(), and nothing else counts

  bool operator==(const PartitionWish&) const = default;
};

struct PartitionGrant {
  uint32_t holder = 0;
  uint32_t entitled = 0;  // after rounding: less than asked for when all ask for more than there is
  uint32_t target = 0;    // with what it borrows, or without what it lends; 0: it does not fit

  bool operator==(const PartitionGrant&) const = default;
};

struct PartitionOrder {
  uint32_t holder = 0;
  SmGroups groups = 0;  // never 0

  bool operator==(const PartitionOrder&) const = default;
};

class SmPartition {
 public:
  explicit SmPartition(const SmGeometry& geometry);

  // From now on; a holder is named once. Holders that are not named have ended: nothing of theirs
  // runs any more, and their groups are free. Wishes that are too much together are scaled down,
  // none below one group; of more holders than groups the new ones get none, the last ones first.
  // The order of the wishes breaks ties. The grants are in the order of the wishes; of those that
  // leave they are empty.
  std::vector<PartitionGrant> plan(std::span<const PartitionWish> wishes);

  // What to tell now; each order once.
  std::vector<PartitionOrder> take_orders();

  // `groups` is what the holder now uses. Anything but the answer to its last order is ignored.
  void confirm(uint32_t holder, SmGroups groups);
  // Its processes have ended.
  void remove(uint32_t holder);

  SmGroups in_use(uint32_t holder) const;   // 0: none, or unknown
  SmGroups ordered(uint32_t holder) const;  // what it was told last
  bool is_settled() const;                  // all have confirmed, and have what they shall have

 private:
  struct Holder {
    uint32_t id = 0;
    uint32_t target = 0;
    bool is_asked = false;        // an order is on its way
    std::vector<uint8_t> groups;  // told; in the order in which it got them
    SmGroups in_use = 0;
  };

  Holder* find(uint32_t id);
  const Holder* find(uint32_t id) const;
  SmGroups free_groups() const;
  static SmGroups mask(const Holder& holder);
  bool has_most(const Holder& holder) const;
  void grow(Holder& holder, uint32_t by, SmGroups& free);

  const SmGeometry geometry_;
  std::vector<Holder> holders_;    // in the order of the wishes
  std::vector<uint32_t> pending_;  // holders with a new order that has not been taken
};

}  // namespace gpushare
