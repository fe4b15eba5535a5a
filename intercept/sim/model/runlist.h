// SPDX-License-Identifier: Apache-2.0
// Runlist: how the entries of one engine of a GPU take turns, in virtual time. EngineModel uses it.
// One thread. Every change takes `now`, which never decreases and is never later than next().
//
// An entry (a context's channel group, or all clients of one MPS server) is runnable while it has
// work that may run. Runnable entries get the engine in turns, each for its slice. A turn has the
// phases restore (if it was stopped within a kernel), start (the timer runs without progress), run
// and save; after it no entry is resident while the engine changes. SwitchCosts has their lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "intercept/sim/model/parameters.h"
#include "shmctl/base/clock.h"

namespace gpushare::sim {

using EntryId = uint32_t;  // 0 means none

// Invariants: at most one entry is resident. It stays while no other is runnable, with or without
// work, and nothing is logged then; its timer runs on and is renewed, so that a newcomer waits for
// what is left of the current slice. When another is runnable, a resident entry without work gives
// way at once. The records alternate: start A, end A, start B, ...
class Runlist {
 public:
  struct Record {
    Time time;
    EntryId entry = 0;
    bool is_start = false;
  };
  // How the time was spent; the parts add up to the time that has passed.
  struct Totals {
    Nanos resident{}, changing{}, empty{};
  };

  Runlist(const SwitchCosts& costs, Time start) : costs_(costs), accounted_(start) {}

  void add(EntryId entry, Nanos slice);
  void remove(EntryId entry, Time now);
  void set_slice(EntryId entry, Nanos slice, Time now);
  Nanos slice(EntryId entry) const;
  void set_runnable(EntryId entry, bool is_runnable, Time now);

  // The next instant at which something happens by itself, or Time::max().
  Time next() const;
  // Does everything that is due by `now`.
  void advance(Time now);

  // The entry that is resident at this instant, with or without work; 0 when there is none.
  EntryId resident_entry() const { return resident_; }
  // The entry whose work makes progress at this instant; 0 when there is none.
  EntryId progressing() const;

  std::vector<Record> take_records() { return std::exchange(records_, {}); }
  Totals totals(Time now) const;

 private:
  enum class Phase : uint8_t { kEmpty, kChanging, kRestoring, kStarting, kRunning, kSaving };
  struct Entry {
    EntryId id = 0;
    Nanos slice{};
    bool is_runnable = false;
    bool has_saved_state = false;  // it was stopped within a kernel, whose state must be loaded
  };

  size_t index_of(EntryId entry) const;
  Entry& resident() { return entries_[index_of(resident_)]; }
  bool is_contended() const;  // true when another entry than the resident is runnable
  void account(Time now);
  void step(Time now);
  void enter(Time now);
  void begin_turn(Time now);
  void leave(Time now);
  // Called after any change: gives way if the resident has no work, and sets the end of its slice.
  void settle(Time now);

  const SwitchCosts costs_;
  std::vector<Entry> entries_;  // in the order of their turns
  size_t cursor_ = 0;           // the entry that has the next turn, if it is runnable
  size_t runnable_count_ = 0;
  Phase phase_ = Phase::kEmpty;
  EntryId resident_ = 0;      // 0 in kEmpty and kChanging
  Time until_{Time::max()};   // the end of the phase, if it has one
  Time timer_start_;          // when the resident's present slice began
  Time expiry_{Time::max()};  // when the slice ends, while another entry is runnable
  std::vector<Record> records_;
  Time accounted_;
  Totals totals_;
};

}  // namespace gpushare::sim
