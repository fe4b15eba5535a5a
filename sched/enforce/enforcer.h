// SPDX-License-Identifier: Apache-2.0
// Enforcer: makes a GPU's processes what a plan says: slices, frozen or not. While the agent lives,
// nothing else changes anything on a GPU. Only what differs is asked of the driver; all that
// freezes at one moment goes in one call, and all that thaws, with the slices in between, so that
// the old process is stopped before the next one starts. Each freeze is written ahead into the
// ledger, and listed there until a thaw has succeeded or the object is gone: what the registry has
// forgotten is thawed first, and what cannot be undone then is a leftover, which is tried again.
//
// Only compute groups are touched. Processes whose groups are one in hardware (clients of one MPS
// server) keep their slice and are stopped instead of frozen, because both would be everybody's
// (measured on an H200); so is a process with more groups than the ledger can list. A process with
// a channel of an unknown class is only observed. A control that the driver refuses twice is left
// alone for a while, which grows to a minute (backoff.h); without freezes a process is only
// observed until then. Its note says why. One thread. Calls block as long as the driver does.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/controlled.h"
#include "sched/enforce/freezes.h"
#include "sched/enforce/leftovers.h"
#include "sched/enforce/sharing.h"
#include "sched/enforce/slices.h"
#include "sched/enforce/stops.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

class Enforcer {
 public:
  using Target = ControlTarget;
  using Change = ControlChange;
  struct State {
    bool is_frozen = false;
    bool can_control = true;
    std::optional<Micros> slice;  // as set by us, or chosen by the process; nullopt not known
    uint64_t freezes = 0;
    bool can_set_slice = true;  // false: weights do not hold for it at present
    std::string note;           // why one of the two is false, or that it is an MPS client
  };

  Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock,
           std::function<void(const Change&)> changed);

  // From now on apply() may set slices for Slices::kStepTime again.
  void begin_step() { slices_.begin_step(); }
  // Whether apply() has left slices as they were, for want of time: it is to be called again soon,
  // and first for a GPU that came last.
  bool is_behind() const { return slices_.is_behind(); }

  // Targets are of this GPU, each process once. Processes not named stay as they are. Freezes and
  // thaws are never put off; of the slices those come first that are furthest from what they
  // should be, by their ratio.
  void apply(uint32_t gpu, std::span<const Target> targets);
  // The process ended, or has no compute group there any more.
  void forget(const ProcessId& process, uint32_t gpu);
  // Thaws everything and gives every group its own slice back.
  void undo_all();
  // The same on one GPU.
  void undo_all(uint32_t gpu);
  // Tries again what could not be undone of objects that nothing here knows any more, among them
  // what an agent before us left in the ledger: with pauses, or `at_once`.
  void undo_leftovers(const ProcReader& processes, bool at_once = false);

  State state(const Holder& holder) const;
  // The slice that this group of the process should have: ours, else what the process chose;
  // nullopt: not known.
  std::optional<Micros> slice(const Holder& holder, const ComputeGroup& seen) const;

 private:
  void leave_what_is_gone(const Holder& holder);
  void meet_what_is_new(const Holder& holder);
  void look_at_classes(const ControlKey& key, Controlled& process, const Holder& holder);
  void release(ControlledGroup& group, const ControlKey& key, bool is_handle_used_again);
  void freeze(uint32_t gpu, std::span<const Target> targets);
  std::optional<FreezeDeed> begin(const Target& target, Controlled& process);
  void end(const FreezeDeed& deed);
  void stop(const ControlKey& key, Controlled& process);
  void thaw(uint32_t gpu, std::span<const ControlKey> keys);
  void end_thaw(const ControlKey& key, Controlled& process, const Result<>& result);
  void refused_freeze(const ControlKey& key, Controlled& process, const Error& error);
  void only_observe(const ControlKey& key, Controlled& process);
  void share(const ControlKey& key, Controlled& process);
  void changed(Change::Kind kind, const ControlKey& key, Time at);

  Gpu& gpu_;
  Ledger& ledger_;
  const Clock& clock_;
  const std::function<void(const Change&)> on_change_;
  AllControlled processes_;
  Leftovers leftovers_;
  Freezes freezes_;
  Stops stops_;
  Sharing sharing_;
  Slices slices_;
};

}  // namespace gpushare
