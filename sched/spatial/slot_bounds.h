// SPDX-License-Identifier: Apache-2.0
// SlotBounds: what one process says of its iterations, held against what cannot be. The process
// writes it, and with a target time it gets SMs for it. Sums that rose by more than the time that
// has passed are a lie: the process then counts as one that says nothing, for kDistrust, and
// reason() says why. A lie that is consistent (an idle program that claims one long iteration after
// the other) cannot be told from a slow service; it gets what such a service gets.
//
// What came before the first reading is not checked, because the process may have run long before
// this agent; iterations under way then may have begun ten minutes before. Pure; the agent's one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sched/spatial/slot_reading.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class SlotBounds {
 public:
  static constexpr Nanos kDistrust = std::chrono::seconds(30);

  // `said` was read by `now`, at most `took` before, and neither instant ever falls. Without
  // `iterations` where they are not believed.
  SlotReading check(Time now, SlotReading said, Nanos took = {});
  // Why the iterations are not believed now; empty: they are.
  std::string_view reason() const { return reason_; }

 private:
  void begin(Time now, const SlotReading& said);
  std::string_view contradiction(Time now, const IterationsView& said) const;
  void note(Time now, const IterationsView& said);

  std::optional<IterationsView> first_, last_;  // readings of this count
  uint64_t launches_ = 0;                       // at the first one
  // The instant of the first one, and the last instants at which an iteration ended; none was under
  // way; and besides no more requests than ever since were unanswered.
  Time begin_{}, end_{}, no_begun_{}, no_open_{};
  int64_t least_open_ = 0;
  Time trusted_from_{};
  std::string_view reason_;
};

}  // namespace gpushare
