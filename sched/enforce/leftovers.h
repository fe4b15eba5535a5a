// SPDX-License-Identifier: Apache-2.0
// Leftovers: what stands in the ledger of channel groups and processes that the enforcer does not
// follow any more: an agent before us left it, or it could not be undone when they went. It is
// tried again with pauses that grow (backoff.h), on each GPU for itself, until it is undone or
// proven to be gone. Whatever has a leftover is not frozen anew before: the driver counts. One
// thread, which asks the driver nothing.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "sched/enforce/controlled.h"
#include "sched/enforce/recovery.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

class Leftovers {
 public:
  // Begins with all that the ledger lists. `is_ours`: whether the freezes of this group that the
  // ledger lists are those of its present bearer, which the enforcer follows: then nothing but a
  // slice is left. All outlive it.
  Leftovers(Ledger& ledger, const Clock& clock, std::function<bool(const LedgerKey&)> is_ours);

  void add(const LedgerKey& key);
  bool contains(const LedgerKey& key) const { return all_.contains(key); }
  // Whether something is left of this group, whoever had it then: a child that inherited the
  // driver's descriptor may have it now.
  bool concerns(const GroupRef& group, uint32_t gpu) const;
  // Whether a group of the holder may be frozen by what is left, or is being undone: its entry in
  // the ledger goes then.
  bool has_freeze(const Holder& holder) const;
  // One of them is being undone by the caller, until end().
  void begin(const LedgerKey& key) { begun_.insert(key); }
  void end(const LedgerKey& key, bool is_undone) {
    begun_.erase(key);
    if (is_undone) all_.erase(key);
  }
  // Those that are to be tried now, by GPU, each of which begins; `at_once`: also before their
  // time. What is frozen by now would be thawed with the slice that is left: it waits until it is
  // thawed. Of a GPU of which `may_ask` says no only processes that were stopped begin, for which
  // no driver is asked.
  std::map<uint32_t, std::set<LedgerKey>> begin_due(
      bool at_once,
      const std::function<bool(uint32_t gpu)>& may_ask = [](uint32_t) { return true; });
  // What came of those that began together on a GPU.
  void end(uint32_t gpu, const std::set<LedgerKey>& tried, const RecoveryReport& report);

 private:
  template <class Fn>
  bool any_of(const GroupRef& group, uint32_t gpu, const Fn& fn) const;

  Ledger& ledger_;
  const Clock& clock_;
  const std::function<bool(const LedgerKey&)> is_ours_;
  std::set<LedgerKey> all_, begun_;
  std::map<uint32_t, Backoff> undoing_;  // by GPU
};

}  // namespace gpushare
