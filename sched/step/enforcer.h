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
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/step/registry.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/program/backoff.h"

namespace gpushare {

class Enforcer {
 public:
  struct Target {
    const Holder* holder = nullptr;
    Micros slice{0};  // 0: as it is
    bool is_frozen = false;
  };
  // What was done, for accounting and traces.
  struct Change {
    enum class Kind { kFreeze, kThaw, kSlice };
    Kind kind{};
    Time at{};  // when the driver had done it
    ProcessId process;
    uint32_t gpu = 0;
    Micros slice{0};
  };
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

  // The time that slices may take between two calls of begin_step(): one takes 0.3 ms on an H200.
  static constexpr Nanos kSliceTime = std::chrono::milliseconds(4);

  // From now on apply() may set slices for kSliceTime again.
  void begin_step() { slice_time_ = kSliceTime; }
  // Whether apply() has left slices as they were, for want of time: it is to be called again soon,
  // and first for a GPU that came last.
  bool is_behind() const { return slice_time_ <= Nanos{}; }

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
  // Handle -> ComputeGroup::serials, or kDoubtful: it may be frozen, and is thawed before it is
  // frozen again.
  using Channels = std::map<uint32_t, uint64_t>;
  static constexpr uint64_t kDoubtful = 0;
  struct Group {
    GroupRef ref;
    uint64_t serial = 0;
    std::optional<uint32_t> hardware;  // number of the group; nullopt: the driver did not say
    Time ask_at{};                     // when to ask for it again
    Channels frozen;                   // also freed ones whose thaw has failed
    std::vector<uint32_t> gone;        // channels that the driver does not have
    Time gone_until{};
    uint32_t begun = 0;                     // freezes written to the ledger
    uint32_t entry = 0;                     // in the ledger; valid with `begun` or `original`
    std::optional<Micros> original, slice;  // before us; set by us
    uint32_t own_slice_count = 0;           // when we set it
  };
  struct Controlled {
    std::vector<Group> groups;
    bool is_frozen = false;  // the last decision that could be carried out
    bool has_unknown_class = false;
    bool shares_group = false;
    Time shared_last{};
    uint64_t generation = 0;             // of the holder, when `gone` was found
    std::optional<uint32_t> stop_entry;  // in the ledger, while the process is stopped
    uint64_t freezes = 0;
    Backoff freezing, slicing;
    std::string note;
    bool can_control(Time now) const { return !has_unknown_class && freezing.may_try(now); }
  };
  struct Freezing {
    const Target* target = nullptr;
    Controlled* process = nullptr;
    std::vector<std::pair<Group*, Channels>> parts;  // what is not frozen yet
  };
  using Key = std::pair<ProcessId, uint32_t>;

  void leave_what_is_gone(const Holder& holder);
  void meet_what_is_new(const Holder& holder);
  void look_at_classes(const Key& key, Controlled& process, const Holder& holder);
  void release(Group& group, const Key& key, bool is_handle_used_again);
  void leave_over(const LedgerKey& key);
  bool has_leftover_freeze(const Holder& holder) const;
  void join(Group& group, const Key& key);
  void check_sharers(const Key& key, uint32_t number);
  std::optional<uint32_t> ask_number(Group& group);
  void leave(const Group& group, const Key& key);
  void look_at_sharing(const Key& key, Controlled& process);
  void freeze(uint32_t gpu, std::span<const Target> targets);
  std::optional<Freezing> begin(const Target& target, Controlled& process);
  bool is_thawed(uint32_t gpu, std::span<const ChannelRef> channels);
  Result<> freeze_each(Freezing& freezing);
  void end(Freezing& freezing, const Result<>& result);
  void set_slices(uint32_t gpu, std::span<const Target> targets);
  static double slice_error(const Target& target, const Controlled& process);
  void take_back(Group& group, const Channels& channels, uint32_t gpu);
  static void add_refs(const Group& group, const Channels& channels, std::vector<ChannelRef>& to);
  static std::vector<ChannelRef> refs(const Freezing& freezing);
  void set_slices(const Target& target, Controlled& process);
  Result<> set_slice(Group& group, const ComputeGroup& seen, Micros slice, uint32_t gpu);
  void thaw(uint32_t gpu, std::span<const Key> keys);
  void thawed(const Key& key, Controlled& process);
  bool restore(Group& group);
  void refused_freeze(const Key& key, Controlled& process, const Error& error);
  void refused_slice(const Key& key, Controlled& process, const Error& error);
  void only_observe(const Key& key, Controlled& process);
  void share(const Key& key, Controlled& process);
  void stop(const Key& key, Controlled& process);
  Result<> resume(const Key& key);
  void changed(Change::Kind kind, const Key& key, Micros slice = Micros(0));
  static LedgerKey ledger_key(const GroupRef& ref, uint32_t gpu);

  Gpu& gpu_;
  Ledger& ledger_;
  const Clock& clock_;
  const std::function<void(const Change&)> on_change_;
  Nanos slice_time_ = kSliceTime;
  std::map<Key, Controlled> processes_;
  std::map<std::pair<uint32_t, uint32_t>, std::set<Key>> sharers_;  // by GPU and hardware group
  std::set<LedgerKey> leftovers_;
  Backoff undoing_;  // of the leftovers
};

}  // namespace gpushare
