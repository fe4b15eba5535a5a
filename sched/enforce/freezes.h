// SPDX-License-Identifier: Apache-2.0
// Freezes: the books of freezes and thaws. Before a freeze is asked of the driver it is written
// ahead into the ledger, where it stays until a thaw has succeeded; what came of it is entered into
// what is known of the process. Asks the driver nothing (deeds.h does). One thread.
#pragma once

#include <optional>

#include "sched/enforce/controlled.h"
#include "sched/enforce/deeds.h"

namespace gpushare {

class Freezes {
 public:
  // All outlive it.
  Freezes(Ledger& ledger, const Clock& clock) : ledger_(ledger), clock_(clock) {}

  struct Begun {
    std::optional<FreezeDeed> deed;  // what is to be asked of the driver; none: nothing
    std::optional<Error> refusal;    // no_space_on_device: the ledger cannot list its groups
  };
  // Finds what of the target is not frozen yet, and writes it ahead.
  Begun begin(const ControlTarget& target, Controlled& process);
  // Enters what came of a deed, whether it succeeded or not. Returns true if the process counts as
  // frozen since then, and did not before.
  bool end(const FreezeDeed& deed, Controlled& process);

  // All of it that is frozen, or may be.
  static ThawDeed thaw_of(const ControlKey& key, const Controlled& process);
  // The process is thawed, or resumed if it was stopped, or gone.
  void thawed(Controlled& process);
  // The thaw failed, and may have thawed a part: all is thawed again before it is frozen again.
  static void not_thawed(Controlled& process);

 private:
  Ledger& ledger_;
  const Clock& clock_;
};

}  // namespace gpushare
