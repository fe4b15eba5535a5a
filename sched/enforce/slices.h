// SPDX-License-Identifier: Apache-2.0
// Slices: gives channel groups the time slices of a plan, and their own ones back. Only what
// differs is asked of the driver, by its line (driver_line.h). Before the first change of a group
// its former slice is written into the ledger. A slice that the process sets itself later is its
// own from then on. One thread, which does not wait for the driver.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sched/enforce/controlled.h"
#include "sched/enforce/driver_line.h"
#include "sched/enforce/leftovers.h"

namespace gpushare {

class Slices {
 public:
  // `changed` is told of each group whose slice was set. All outlive it.
  Slices(Ledger& ledger, const Clock& clock, const Leftovers& leftovers,
         std::function<void(const ControlChange&)> changed);

  // Asks for the slices of all targets that have others: those first that are furthest from what
  // they should be, by their ratio. What was asked for before and has not begun is forgotten.
  // Processes that cannot be controlled now, or share their group, are left as they are. Returns
  // false if the former slice of any is to be read first: then call again soon.
  bool set(std::span<const FollowedTarget> targets, DriverLine& line);
  // Asks for the process's own slices.
  static void restore(const ControlKey& key, Controlled& process, DriverLine& line);
  // Enters what came of an order.
  void enter(const SliceOrder& order, Controlled& process, DriverLine& line);

  // The group is another one by now: what was set is gone with it.
  void drop(ControlledGroup& group);

 private:
  void order(const ControlTarget& target, Controlled& process, std::vector<SliceOrder>& orders,
             DriverLine& line);
  bool note(ControlledGroup& group, Micros original, const ControlKey& key, Controlled& process,
            DriverLine& line);
  void refused(const ControlKey& key, Controlled& process, const Error& error, DriverLine& line);

  Ledger& ledger_;
  const Clock& clock_;
  const Leftovers& leftovers_;
  const std::function<void(const ControlChange&)> changed_;
};

// The slice that the group has: ours, otherwise what the process chose; nullopt: not known.
// `process` may be nullptr.
std::optional<Micros> slice_of(const Controlled* process, const ComputeGroup& seen);

}  // namespace gpushare
