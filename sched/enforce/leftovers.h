// SPDX-License-Identifier: Apache-2.0
// Leftovers: what stands in the ledger of channel groups and processes that the enforcer does not
// follow any more: an agent before us left it, or it could not be undone when they went. It is
// tried again with pauses that grow (backoff.h) until it is undone or proven to be gone. Whatever
// has a leftover is not frozen anew before: the driver counts. One thread.
#pragma once

#include <set>
#include <vector>

#include "sched/enforce/controlled.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

class Leftovers {
 public:
  // Begins with all that the ledger lists. All outlive it.
  Leftovers(Gpu& gpu, Ledger& ledger, const Clock& clock);

  void add(const LedgerKey& key);
  bool contains(const LedgerKey& key) const { return all_.contains(key); }
  // Whether something is left of this group, whoever had it then: a child that inherited the
  // driver's descriptor may have it now.
  bool concerns(const GroupRef& group, uint32_t gpu) const;
  // Whether a group of the holder may be frozen by what is left.
  bool has_freeze(const Holder& holder) const;
  // Undoes what can be undone, when it is time, or `at_once`. Returns the processes that were
  // thawed or resumed.
  std::vector<ProcessId> undo(const ProcReader& processes, bool at_once);

 private:
  template <class Fn>
  bool any_of(const GroupRef& group, uint32_t gpu, const Fn& fn) const;

  Gpu& gpu_;
  Ledger& ledger_;
  const Clock& clock_;
  std::set<LedgerKey> all_;
  Backoff undoing_;
};

}  // namespace gpushare
