// SPDX-License-Identifier: Apache-2.0
// LoneContext: how busy a process is taken to be while it has the GPU to itself, until a sample of
// the driver tells. The switch log says nothing then: a context alone stays resident, busy or idle.
// A sample is there 0.2 to 0.4 s later, and sets right what was charged (lone_use.h); until then,
// in this order:
//   its word  A start is resident without running anything while context and modules are made. If
//             it has the shim, it says what it has launched and whether it waits for that. While it
//             is young, its residence beyond one time slice (before that others may be waiting, and
//             it is not alone) is no use while it has nothing in flight.
//   turn      Where jobs take turns a process waits at its gate, and samples of that time say that
//             it is idle. While it has the turn and works, residence is use, until a sample can
//             tell of that; not while it says that it rests.
//   samples   it goes on as in the newest one.
//   otherwise residence is use, so that a cap bites.
// The word is the process's own; once a sample has contradicted it, it counts no more. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "sched/account/scaled.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class LoneContext {
 public:
  // What a process with the shim says of itself; its launches only rise.
  struct Word {
    uint64_t launches = 0;
    bool waits = false;  // a thread waits for what was launched
  };

  // After this age its word is not asked for: twice as long as 48 programs took that started on an
  // H200 (bench/results/starts.jsonl).
  static constexpr Nanos kYoung = std::chrono::seconds(30);
  // The first sample is there by then, if there are any: 0.4 s, and a second in which the driver's
  // lock may be held by starts.
  static constexpr Nanos kUnsampled = std::chrono::milliseconds(1500);
  // What was launched so long ago, and is not waited for, has ended, as far as can be told.
  static constexpr Nanos kRest = std::chrono::milliseconds(20);
  // Samples come if there was one so lately.
  static constexpr Nanos kStale = std::chrono::seconds(3);
  // It goes on as it was sampled for so long: meanwhile it was alone, or resident at all.
  static constexpr Nanos kGoesOn = std::chrono::milliseconds(1500);

  // A sample: of what it was resident for alone between these instants it used this part, which was
  // so much; < 0: it tells nothing of that.
  void sample(Time from, Time until, double rate, Nanos used) {
    sampled_ = until;
    if (rate < 0) return;
    rate_ = rate;
    told_from_ = from;
    told_until_ = until;
    if (used >= scaled(until - from, kLie) && rests_since_ <= from && is_at_rest(until))
      is_believed_ = false;
  }

  // To be called now and then while it is young: its launches only rise, so none is missed. The
  // switch log may tell of the time before only later, so that its last rests are remembered.
  void hear(const Word& word, Time now) {
    const bool has_launched = word.launches != word_.launches;
    if (has_launched || word.waits) {
      if (rests_since_ <= heard_) note_rest({rests_since_, heard_});
      rests_since_ = now + kRest;
    }
    word_ = word;
    heard_ = now;
  }

  // It has its turn and works from now on. Samples tell of it already if it has only rested for a
  // moment; of what it did before it was held, they tell nothing.
  void begin_work(Time now) {
    if (works_until_ == Time::max()) return;
    if (was_held_ || now - works_until_ >= kMoment) works_since_ = now;
    works_until_ = Time::max();
    was_held_ = false;
  }
  // It rests, or is held.
  void end_work(bool is_held, Time now) {
    if (works_until_ == Time::max()) works_until_ = now;
    was_held_ = was_held_ || is_held;
  }

  // Part of its residence that counts as use, as long as no sample tells of it.
  double rate(Time now) const {
    const bool is_untold =
        now >= works_since_ && now <= works_until_ && works_since_ > told_from_ && !is_at_rest(now);
    const bool is_told = told_until_ != Time{} && now - told_until_ < kGoesOn;
    return is_told && !is_untold ? rate_ : 1.0;
  }

  // Whether it is resident without having anything to do, by its word.
  bool is_excused(Nanos age, Time now) const {
    return is_at_rest(now) && age < kYoung && (age < kUnsampled || is_sampled(now));
  }

 private:
  // After a shorter rest it goes on as before.
  static constexpr Nanos kMoment = std::chrono::seconds(1);
  // The least that a process which rests is not sampled at: what a start does is below.
  static constexpr double kLie = 0.1;
  // More than the longest that two steps are apart.
  static constexpr Nanos kWordHolds = std::chrono::milliseconds(250);
  // While many programs start the log is read up to a second late, in which one of them can have
  // rested so often.
  static constexpr size_t kRests = 48;

  struct Rest {
    Time from{}, until{};
  };

  bool is_sampled(Time now) const { return sampled_ != Time{} && now - sampled_ < kStale; }
  // By its word, as far as that counts.
  bool is_at_rest(Time now) const {
    if (!is_believed_ || heard_ == Time{} || now - heard_ > kWordHolds) return false;
    if (now >= rests_since_) return true;
    const auto later = std::ranges::upper_bound(rests_, now, {}, &Rest::from);
    return later != rests_.begin() && now <= std::prev(later)->until;
  }
  // The one before its first launch stays: a start may be long.
  void note_rest(const Rest& rest) {
    if (rests_.size() == kRests) rests_.erase(rests_.begin() + 1);
    rests_.push_back(rest);
  }

  double rate_ = 1;
  Time told_from_{}, told_until_{};  // by a sample of this time
  Time sampled_{};                   // the newest sample's end
  Word word_{};
  Time heard_{};             // zero: it has said nothing
  Time rests_since_{};       // may be to come; zero: it has never launched
  std::vector<Rest> rests_;  // before that, ascending
  bool is_believed_ = true;
  Time works_since_{}, works_until_{};  // the last time; Time::max(): it still does
  bool was_held_ = true;                // since it worked last
};

}  // namespace gpushare
