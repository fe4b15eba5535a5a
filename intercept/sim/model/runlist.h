// SPDX-License-Identifier: Apache-2.0
// Runlist: how one engine of a GPU takes turns among contexts, in virtual time.
//
// An entry (a context's channel group, or all clients of one MPS server) is runnable while it has
// work that may run. Runnable entries get the engine in turn, each for its slice. A turn passes
// through: restore (if it was stopped in a kernel), start (timer runs, no progress yet), run, save;
// then nobody is resident while the engine changes over. See SwitchCosts for what each takes.
//
// Invariants: at most one entry is resident. The resident one stays when no other is runnable, busy
// or idle, and then nothing is logged; its timer goes on and is renewed, so a newcomer waits for
// what is left of the current slice. A resident one without work gives way at once. Records of
// the log alternate: start A, end A, start B, ...
//
// Not thread-safe. Every change takes `now`, which never goes back and never passes next().
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "intercept/sim/model/parameters.h"
#include "shmctl/base/clock.h"

namespace gpushare::sim {

using EntryId = uint32_t;  // 0: none

class Runlist {
 public:
  struct Record {
    Time time;
    EntryId entry = 0;
    bool is_start = false;
  };
  // Where the time went; the parts add up to what has passed.
  struct Totals {
    Nanos resident{}, changing{}, empty{};
  };

  Runlist(const SwitchCosts& costs, Time start) : costs_(costs), accounted_(start) {}

  void add(EntryId entry, Nanos slice);
  void remove(EntryId entry, Time now);
  void set_slice(EntryId entry, Nanos slice, Time now);
  Nanos slice(EntryId entry) const;
  void set_runnable(EntryId entry, bool is_runnable, Time now);

  // When something happens by itself; Time::max() if nothing will.
  Time next() const;
  // Does everything that is due at `now`.
  void advance(Time now);

  // The entry whose work makes progress at this instant.
  EntryId progressing() const;

  std::vector<Record> take_records() { return std::exchange(records_, {}); }
  Totals totals(Time now) const;

 private:
  enum class Phase : uint8_t { kEmpty, kChanging, kRestoring, kStarting, kRunning, kSaving };
  struct Entry {
    EntryId id = 0;
    Nanos slice{};
    bool is_runnable = false;
    bool has_saved_state = false;  // stopped in a kernel whose state must be loaded again
  };

  size_t index_of(EntryId entry) const;
  Entry& resident() { return entries_[index_of(resident_)]; }
  bool is_contended() const;  // another than the resident is runnable
  void account(Time now);
  void step(Time now);
  void enter(Time now);
  void begin_turn(Time now);
  void leave(Time now);
  // After any change: gives way if the resident has no work, and sets the end of its slice.
  void settle(Time now);

  const SwitchCosts costs_;
  std::vector<Entry> entries_;  // in order of turns
  size_t cursor_ = 0;           // whose turn is next, if runnable
  size_t runnable_count_ = 0;
  Phase phase_ = Phase::kEmpty;
  EntryId resident_ = 0;      // 0 in kEmpty and kChanging
  Time until_{Time::max()};   // end of the phase, where it has one
  Time timer_start_;          // of the resident's present turn
  Time expiry_{Time::max()};  // end of its slice, while contended
  std::vector<Record> records_;
  Time accounted_;
  Totals totals_;
};

}  // namespace gpushare::sim
