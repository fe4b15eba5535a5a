// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/model/runlist.h"

#include <algorithm>
#include <cassert>

namespace gpushare::sim {

size_t Runlist::index_of(EntryId entry) const {
  const auto found = std::ranges::find(entries_, entry, &Entry::id);
  assert(found != entries_.end());
  return static_cast<size_t>(found - entries_.begin());
}

bool Runlist::is_contended() const {
  const bool is_resident_counted = resident_ != 0 && entries_[index_of(resident_)].is_runnable;
  return runnable_count_ > (is_resident_counted ? 1U : 0U);
}

// --- changes from outside ---------------------------------------------------------------------

void Runlist::add(EntryId entry, Nanos slice) { entries_.push_back({.id = entry, .slice = slice}); }

void Runlist::remove(EntryId entry, Time now) {
  set_runnable(entry, false, now);
  if (resident_ == entry) leave(now);
  const size_t index = index_of(entry);
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(index));
  if (cursor_ > index) --cursor_;
}

void Runlist::set_slice(EntryId entry, Nanos slice, Time now) {
  account(now);
  entries_[index_of(entry)].slice = slice;
  if (resident_ == entry) expiry_ = Time::max();
  settle(now);
}

Nanos Runlist::slice(EntryId entry) const { return entries_[index_of(entry)].slice; }

void Runlist::set_runnable(EntryId entry, bool is_runnable, Time now) {
  account(now);
  Entry& changed = entries_[index_of(entry)];
  if (changed.is_runnable == is_runnable) return;
  changed.is_runnable = is_runnable;
  runnable_count_ += is_runnable ? 1 : -1;
  settle(now);
}

// --- turns ------------------------------------------------------------------------------------

Time Runlist::next() const {
  switch (phase_) {
    case Phase::kEmpty:
      return Time::max();
    case Phase::kChanging:
    case Phase::kRestoring:
    case Phase::kSaving:
      return until_;
    case Phase::kStarting:
      return std::min(until_, expiry_);
    case Phase::kRunning:
      return expiry_;
  }
  return Time::max();
}

void Runlist::advance(Time now) {
  account(now);
  while (next() <= now) step(now);
}

void Runlist::step(Time now) {
  switch (phase_) {
    case Phase::kEmpty:
      break;
    case Phase::kChanging:
      enter(now);
      break;
    case Phase::kRestoring:
      begin_turn(now);
      break;
    case Phase::kStarting:
      if (expiry_ <= now) {
        leave(now);  // nothing ran, so there is no state to save
      } else {
        resident().has_saved_state = false;
        phase_ = Phase::kRunning;
      }
      break;
    case Phase::kRunning:
      phase_ = Phase::kSaving;
      until_ = now + costs_.save;
      break;
    case Phase::kSaving:
      resident().has_saved_state = true;
      if (is_contended()) {
        leave(now);
      } else {  // the entry that it should give way to is gone
        phase_ = Phase::kRestoring;
        until_ = now + costs_.restore;
      }
      break;
  }
}

void Runlist::enter(Time now) {
  const size_t count = entries_.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (cursor_ + i) % count;
    Entry& entry = entries_[index];
    if (!entry.is_runnable) continue;
    cursor_ = index + 1;
    resident_ = entry.id;
    records_.push_back({now, entry.id, true});
    if (entry.has_saved_state) {
      phase_ = Phase::kRestoring;
      until_ = now + costs_.restore;
    } else {
      begin_turn(now);
    }
    return;
  }
  phase_ = Phase::kEmpty;
}

void Runlist::begin_turn(Time now) {
  phase_ = Phase::kStarting;
  timer_start_ = now;
  until_ = now + costs_.ramp;
  expiry_ = Time::max();
  settle(now);
}

void Runlist::leave(Time now) {
  records_.push_back({now, resident_, false});
  // After the last comes the first, also when another one is added behind it meanwhile.
  cursor_ = (index_of(resident_) + 1) % entries_.size();
  resident_ = 0;
  expiry_ = Time::max();
  phase_ = Phase::kChanging;
  until_ = now + costs_.change;
}

void Runlist::settle(Time now) {
  if (phase_ == Phase::kEmpty && runnable_count_ > 0) {
    phase_ = Phase::kChanging;
    until_ = now + costs_.change;
  }
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  if (!is_contended()) {
    expiry_ = Time::max();
    return;
  }
  const Entry& entry = resident();
  if (!entry.is_runnable) {
    leave(now);
  } else if (expiry_ == Time::max()) {
    const auto passed = (now - timer_start_) / entry.slice;
    expiry_ = timer_start_ + (passed + 1) * entry.slice;
  }
}

EntryId Runlist::progressing() const {
  if (phase_ != Phase::kRunning) return 0;
  return entries_[index_of(resident_)].is_runnable ? resident_ : 0;
}

// --- accounting -------------------------------------------------------------------------------

void Runlist::account(Time now) {
  totals_ = totals(now);
  accounted_ = now;
}

Runlist::Totals Runlist::totals(Time now) const {
  Totals sum = totals_;
  const Nanos passed = now - accounted_;
  if (phase_ == Phase::kEmpty) {
    sum.empty += passed;
  } else if (phase_ == Phase::kChanging) {
    sum.changing += passed;
  } else {
    sum.resident += passed;
  }
  return sum;
}

}  // namespace gpushare::sim
