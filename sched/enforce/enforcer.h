// SPDX-License-Identifier: Apache-2.0
// Enforcer: makes a GPU's processes what a plan says: slices, frozen or not. While the agent lives,
// nothing else changes anything on a GPU. Only what differs is asked of the driver; all that
// thaws at one moment goes in one call, and all that freezes, in the order that is asked for
// (SwitchOrder), and then the slices. Each freeze is written ahead into
// the ledger, and listed there until a thaw has succeeded or the object is gone: what the registry
// has forgotten is thawed first, and what cannot be undone then is a leftover, which is tried
// again.
//
// Only compute groups are touched. Processes whose groups are one in hardware (clients of one MPS
// server) keep their slice and are stopped instead of frozen, because both would be everybody's
// (measured on an H200); so is a process with more groups than the ledger can list. A process with
// a channel of an unknown class is only observed. A control that the driver refuses twice is left
// alone for a while, which grows to a minute (backoff.h); without freezes a process is only
// observed until then. Its note says why.
//
// One thread calls, which waits for no call of the driver. All of them go by one line for each GPU
// (driver_line.h) and are entered when they are done, by collect() or the next apply(): meanwhile
// the process is as it was, and nothing else is asked for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/controlled.h"
#include "sched/enforce/driver_line.h"
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

  Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock, std::function<void(const Change&)> changed,
           const MakeDriverLine& make_line = driver_lines(DriverCalls::kInStep));

  // Enters what the driver has done since the last call.
  void collect();
  // To be called before the apply() of a step.
  void begin_step() { is_behind_ = false; }
  // Whether apply() has left a process as it was, because something of it was under way or is to be
  // known first: it is to be called again soon.
  bool is_behind() const { return is_behind_; }
  // Whether the GPU's driver has not come back from a call for long. Nothing else should be asked
  // of that GPU meanwhile.
  bool is_stuck(uint32_t gpu) const { return lines_[gpu]->is_stuck(); }
  // Asks something else of the GPU's driver: what it returns is called by collect() or apply().
  void ask(uint32_t gpu, DriverQuestion question) { lines_[gpu]->ask(std::move(question)); }

  // Targets are of this GPU, each process once. Processes not named stay as they are. Freezes and
  // thaws go first; of the slices those that are furthest from what they should be, by their ratio.
  void apply(uint32_t gpu, std::span<const Target> targets,
             SwitchOrder order = SwitchOrder::kThawsFirst);
  // The process ended, or has no compute group there any more.
  void forget(const ProcessId& process, uint32_t gpu);
  // Whether the process is neither frozen nor stopped, and nothing of that is under way.
  bool may_run(const ControlKey& key) const;
  // Whether the process is frozen by its channels, and not stopped as an MPS client is.
  bool has_frozen_channels(const ControlKey& key) const;
  // Undoes on a GPU what another process did to this one: `deed` asks the driver, and touches
  // nothing else. Nothing else is begun for the process meanwhile. REQUIRES: may_mend(), which is
  // false while we keep it frozen, and while something of it is under way.
  bool may_mend(const ControlKey& key);
  // `then`, unless it is empty, is called on this thread when it is done.
  void mend(const ControlKey& key, std::function<Result<>()> deed, std::function<void()> then = {});
  // Thaws everything and gives every group its own slice back, for the end: waits for that, on all
  // GPUs at once, but not longer than kPatience, and not for a GPU that is stuck.
  void undo_all();
  // Both together are less than the five seconds that the supervisor gives an agent to end.
  static constexpr Nanos kPatience = std::chrono::seconds(3),
                         kPatienceForLeftovers = std::chrono::seconds(1);
  // Waits until no call of the driver is under way, in the same manner. Returns whether that is so;
  // otherwise the end of this object would wait for the driver.
  bool rest(Nanos patience);
  // The same on one GPU, without waiting.
  void undo_all(uint32_t gpu);
  // Tries again what could not be undone of objects that nothing here knows any more, among them
  // what an agent before us left in the ledger: with pauses, or `at_once`, and then it waits for
  // that, but not longer than kPatienceForLeftovers. A GPU that is not open is asked nothing:
  // whoever drove it before may not be done with it. `processes` outlives this.
  void undo_leftovers(const ProcReader& processes, bool at_once = false);

  // The same without `note` and `can_set_slice`, which take longer than the rest.
  State brief(const Holder& holder) const;
  State state(const Holder& holder) const;
  // The slice that this group of the process should have: ours, else what the process chose;
  // nullopt: not known.
  std::optional<Micros> slice(const Holder& holder, const ComputeGroup& seen) const;
  // Whether it is known to be one of several clients of an MPS server, whose group they have.
  bool shares_group(const Holder& holder) const;

 private:
  const Controlled* find(const Holder& holder) const;  // nullptr: it is not followed
  State brief(const Holder& holder, const Controlled* process) const;
  static bool is_as_before(const Holder& holder, const Controlled& process);
  bool leave_what_is_gone(const Target& target, Controlled& process);
  void meet_what_is_new(const Holder& holder, Controlled& process);
  void look_at_classes(const ControlKey& key, Controlled& process, const Holder& holder);
  void release(ControlledGroup& group, const ControlKey& key, bool is_handle_used_again);
  void collect(uint32_t gpu);
  std::vector<uint32_t> settle(Nanos patience, const std::function<bool(uint32_t gpu)>& goes_on);
  void switch_over(uint32_t gpu, std::vector<FreezeDeed> freezes, std::span<const ControlKey> thaws,
                   SwitchOrder order = SwitchOrder::kThawsFirst);
  std::vector<FreezeDeed> begin_freezes(std::span<const FollowedTarget> targets);
  std::optional<FreezeDeed> begin(const Target& target, Controlled& process);
  void end(const FreezeDeed& deed);
  void stop(const ControlKey& key, Controlled& process);
  void end_thaw(const ControlKey& key, const Result<>& result, Time at);
  void refused_freeze(const ControlKey& key, Controlled& process, const Error& error);
  void undo(uint32_t gpu, std::span<const ControlKey> keys);
  void go_on(const ControlKey& key);
  void end_doubt(const ControlKey& key, std::span<const ChannelRef> freed, bool is_thawed);
  void released(const LedgerKey& listed, bool is_undone, std::span<const ChannelRef> thawed);
  bool has_begun(const LedgerKey& key) const;
  void undone(uint32_t gpu, const std::set<LedgerKey>& tried, const RecoveryReport& report);
  void doubt(uint32_t gpu, std::span<const ChannelRef> thawed);
  void share(const ControlKey& key, Controlled& process);
  void changed(Change::Kind kind, const ControlKey& key, Time at);

  Gpu& gpu_;
  Ledger& ledger_;
  const Clock& clock_;
  const std::function<void(const Change&)> on_change_;
  AllControlled processes_;
  std::set<ControlKey> still_frozen_;  // whose thaw has failed
  Leftovers leftovers_;
  Freezes freezes_;
  Stops stops_;
  Sharing sharing_;
  Slices slices_;
  bool is_behind_ = false;
  bool is_collecting_ = false;
  std::vector<std::unique_ptr<DriverLine>> lines_;  // by GPU; last: their ends wait for the driver
};

}  // namespace gpushare
