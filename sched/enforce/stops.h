// SPDX-License-Identifier: Apache-2.0
// Stops: stops and resumes processes that cannot be frozen channel by channel (MPS clients, and
// those with more groups than the ledger can list). A stop is written ahead into the ledger like a
// freeze, as an entry that names the process alone. Stops are not counted, and a process that was
// stopped for two GPUs runs on when neither wants it stopped. One thread.
#pragma once

#include <span>

#include "sched/enforce/controlled.h"
#include "sched/enforce/leftovers.h"

namespace gpushare {

class Stops {
 public:
  // All outlive it.
  Stops(Gpu& gpu, Ledger& ledger, Leftovers& leftovers, const AllControlled& all)
      : gpu_(gpu), ledger_(ledger), leftovers_(leftovers), all_(all) {}

  // REQUIRES: none of its channels is frozen. Returns whether it is stopped now, and was not
  // before; it is not while a stop of an agent before is still to be undone.
  Result<bool> stop(const ControlKey& key, Controlled& process);
  // Of a process that stop() has stopped: anybody of its user may have let it go on since.
  void stop_again(const ControlKey& key);
  // Does nothing if another GPU wants it stopped.
  Result<> resume(const ControlKey& key);
  // Of a process that is not followed any more on this GPU. What fails becomes a leftover.
  void release(const ControlKey& key, Controlled& process);
  // These were resumed by others: stops again what is to stand still.
  void stop_again(std::span<const ProcessId> resumed);

 private:
  Gpu& gpu_;
  Ledger& ledger_;
  Leftovers& leftovers_;
  const AllControlled& all_;
};

}  // namespace gpushare
