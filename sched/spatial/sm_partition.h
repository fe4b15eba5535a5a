// SPDX-License-Identifier: Apache-2.0
// SmPartition: which holder may use which SM groups of one GPU, now and on the way to the next
// division. A holder is what has a partition together: sm_sets.h says which tenants that are. The
// partitions are disjoint at every moment, also while they change: a holder that shrinks must have
// said that it has, before another gets what it gave up. Pure; on the agent's one thread;
// O(holders * groups) for each change. A holder has confirmed when all processes in it have.
//   16 groups, the last one larger; A has 15,0-9, B 10-14; now B is planned to have 8:
//     plan -> assigned: A 15,0-6       (B's groups are still A's until A answers)
//     confirm(A) -> assigned: B 10-14,7-9
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/policy/sm_geometry.h"

namespace gpushare {

struct PlannedHolder {
  uint32_t holder = 0;
  uint32_t groups = 1;      // at least 1
  bool is_idle = false;     // it lends all but one group
  bool can_borrow = true;   // it takes what others lend and nobody planned
  bool is_leaving = false;  // it keeps what it has until remove(), and nothing else counts
  uint32_t least = 1;       // groups: it is never told to use fewer, also while it lends

  bool operator==(const PlannedHolder&) const = default;
};

struct HolderSize {
  uint32_t holder = 0;
  uint32_t entitled = 0;  // groups; less than planned when more is planned than there is
  uint32_t target = 0;    // with what it borrows, or without what it lends; 0: it does not fit

  bool operator==(const HolderSize&) const = default;
};

// What a holder (or, in sm_sets.h, a tenant) is told to use from now on.
struct Assignment {
  uint32_t to = 0;
  SmGroups groups = 0;  // never 0

  bool operator==(const Assignment&) const = default;
};

// Rules, each of which the tests hold against random plans, deaths and answers that come late or
// never:
//   1. No group is in use by two. "In use" is what a holder has confirmed and what it was told.
//   2. One assignment is on its way to a holder at a time: so an old set cannot be taken for the
//      answer to a newer one.
//   3. A holder that does not answer keeps what it has; all others go on with the rest.
//   4. Every holder that fits has at least one group, also while it lends the others: it can always
//      launch, and what it lent comes back in one round of assignments.
//   5. Nothing moves but what must: a holder gives up what it got last (but see 7), and never
//      swaps.
//   6. A holder is told to use no fewer groups than its least: one that has fewer waits until as
//      many are free at once.
//   7. A last group that is larger than the others goes first to the holder that is to have most:
//      for the others it would be too much. One that shrinks gives it up first, if another grows
//      and is to have more. It is not given to a holder with no other group while another one is
//      free, nor kept by one that keeps one: it has what was left of several parts of the GPU, and
//      alone it takes no clusters of blocks (docs/driver-facts.md).
class SmPartition {
 public:
  explicit SmPartition(const SmGeometry& geometry);

  // From now on; a holder is named once. Holders that are not named have ended: nothing of theirs
  // runs any more, and their groups are free. Plans that are too large together are scaled down,
  // none below one group; of more holders than groups the new ones get none, the last ones first.
  // Where all leasts together are more than there is, one group is the least of all of them.
  // The order of `planned` breaks ties, and is that of the result; of those that leave the sizes
  // are 0.
  std::vector<HolderSize> plan(std::span<const PlannedHolder> planned);

  // What to tell now; each assignment once.
  std::vector<Assignment> take_assignments();

  // `groups` is what the holder now uses. Anything but the answer to its last assignment is
  // ignored.
  void confirm(uint32_t holder, SmGroups groups);
  // Its processes have ended.
  void remove(uint32_t holder);

  SmGroups in_use(uint32_t holder) const;    // 0: none, or unknown
  SmGroups assigned(uint32_t holder) const;  // what it was told last
  bool is_settled() const;                   // all have confirmed, and have what was planned

 private:
  struct Holder {
    uint32_t id = 0;
    uint32_t target = 0;
    uint32_t least = 1;
    bool is_asked = false;        // an assignment is on its way
    std::vector<uint8_t> groups;  // told; in the order in which it got them
    SmGroups in_use = 0;
  };

  Holder* find(uint32_t id);
  const Holder* find(uint32_t id) const;
  SmGroups free_groups() const;
  static SmGroups mask(const Holder& holder);
  bool has_most(const Holder& holder) const;
  void order_last_group(Holder& holder) const;
  uint32_t growth(const Holder& holder, uint32_t free) const;
  void grow(Holder& holder, uint32_t by, SmGroups& free);

  const SmGeometry geometry_;
  std::vector<Holder> holders_;    // in the order of the plan
  std::vector<uint32_t> pending_;  // holders whose new assignment has not been taken
};

}  // namespace gpushare
