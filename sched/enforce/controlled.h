// SPDX-License-Identifier: Apache-2.0
// Controlled: what the enforcer knows of one process on one GPU: its channel groups, what was done
// to them, and what the driver refused. The parts of the enforcer (freezes.h, slices.h, stops.h,
// sharing.h) work on the same objects, each on its own fields. Data, on the scheduler's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "sched/enforce/holder.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/program/backoff.h"

namespace gpushare {

// By handle: ComputeGroup::serials, or kDoubtful: it may be frozen, and is thawed before it is
// frozen again.
using FrozenChannels = std::map<uint32_t, uint64_t>;
inline constexpr uint64_t kDoubtful = 0;

// A channel or a group that the driver did not know is named to it again after this.
inline constexpr Nanos kAskAgain = std::chrono::seconds(1);

// Lists of channels to thaw one after the other, because the driver counts: each channel is in as
// many of them as freezes of it may be in force.
using ThawRounds = std::vector<std::vector<ChannelRef>>;

struct ControlledGroup {
  GroupRef ref;
  uint64_t serial = 0;
  std::optional<uint32_t> hardware;  // number of the group; nullopt: the driver did not say
  Time ask_at{};                     // when to ask for it again
  bool is_asked_for = false;         // the driver is being asked for it
  FrozenChannels frozen;             // also freed ones whose thaw has failed
  // How many times more than once: after events were lost what is frozen is frozen again, rather
  // than thawed for a moment, since a channel that was made meanwhile may have the same handle.
  std::map<uint32_t, uint32_t> again;
  std::vector<uint32_t> gone;  // channels that the driver does not have
  Time gone_until{};
  uint32_t begun = 0;                     // freezes written to the ledger
  uint32_t entry = 0;                     // in the ledger; valid with `begun` or `original`
  std::optional<Micros> original, slice;  // before us; set by us
  bool is_restoring = false;              // `original` is being set
  uint32_t own_slice_count = 0;           // when we set it

  // After so many times it is thawed for a moment after all. Recovery thaws 16 times at most.
  static constexpr uint32_t kMostAgain = 8;
  bool may_freeze_again(uint32_t channel) const {
    const auto times = again.find(channel);
    return times == again.end() || times->second < kMostAgain;
  }
  void add_thaws(uint32_t channel, ThawRounds& rounds) const {
    const auto times = again.find(channel);
    const std::size_t all = 1 + (times == again.end() ? 0 : times->second);
    if (rounds.size() < all) rounds.resize(all);
    for (std::size_t i = 0; i < all; ++i) rounds[i].push_back({ref.client, channel});
  }
  void forget(uint32_t channel) {
    frozen.erase(channel);
    again.erase(channel);
  }
};

struct Controlled {
  std::vector<ControlledGroup> groups;  // ascending by client and group
  bool is_frozen = false;               // the last decision that could be carried out
  bool has_unknown_class = false;
  bool shares_group = false;
  Time shared_last{};
  uint64_t generation = 0;             // of the holder, when `gone` was found
  std::optional<uint32_t> stop_entry;  // in the ledger, while the process is stopped
  uint64_t freezes = 0;
  Backoff freezing, slicing;
  std::string note;
  bool has_doubt = false;     // a thaw has failed: what is frozen is to be looked at
  bool is_switching = false;  // a freeze or thaw of it is under way: nothing else is begun
  uint32_t mending = 0;       // deeds of Enforcer::mend() under way: it is switching until the last
  bool owes_undo = false;     // it is thawed, and its slices restored, when that is over
  bool is_forgotten = false;  // it goes when nothing of it is under way any more

  // At a time, or by a clock.
  bool can_control(const auto& now) const { return !has_unknown_class && freezing.may_try(now); }
  // The first that does not come before this one.
  auto place_of(const GroupRef& ref) {
    return std::ranges::lower_bound(
        groups, std::pair(ref.client, ref.group), {},
        [](const ControlledGroup& group) { return std::pair(group.ref.client, group.ref.group); });
  }
  // nullptr: it is not followed.
  ControlledGroup* find(const GroupRef& ref) {
    const auto at = place_of(ref);
    const bool is_there =
        at != groups.end() && at->ref.client == ref.client && at->ref.group == ref.group;
    return is_there ? &*at : nullptr;
  }
  const ControlledGroup* find(const GroupRef& ref) const {
    return const_cast<Controlled*>(this)->find(ref);
  }
};

using ControlKey = std::pair<ProcessId, uint32_t>;  // and GPU

// What shall be of a process.
struct ControlTarget {
  const Holder* holder = nullptr;
  Micros slice{0};  // 0: as it is
  bool is_frozen = false;
};
// What was done, for accounting and traces.
struct ControlChange {
  enum class Kind { kFreeze, kThaw, kSlice };
  Kind kind{};
  Time at{};  // when the driver had done it
  ProcessId process;
  uint32_t gpu = 0;
  Micros slice{0};
};

using AllControlled = std::map<ControlKey, Controlled>;

// A target and what is known of its process.
struct FollowedTarget {
  ControlTarget target;
  Controlled* process = nullptr;
};

inline bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }
// Of a call that undoes something: it has, or what it names is there no more.
inline bool has_undone(const Result<>& result) { return result || is_gone(result.error()); }

inline LedgerKey ledger_key(const GroupRef& ref, uint32_t gpu) {
  return {.pid = ref.process.pid,
          .start_ticks = ref.process.start_ticks,
          .gpu = gpu,
          .client = ref.client,
          .group = ref.group};
}
// The process itself: no client and no group.
inline LedgerKey ledger_key(const ControlKey& key) {
  return {.pid = key.first.pid, .start_ticks = key.first.start_ticks, .gpu = key.second};
}

}  // namespace gpushare
