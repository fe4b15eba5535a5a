// SPDX-License-Identifier: Apache-2.0
// LoneContext: how busy a process is while it has the GPU to itself. The switch log says nothing
// then: a context alone stays resident, busy or idle. What is left is, in this order:
//   samples   The driver's utilisation, once a second, of a second that ended up to a second ago.
//   So
//             the use of a lone process is known to a few percent of a second, to a third while it
//             is being frozen, and late: one that turns busy is charged too little for up to 2 s,
//             one that turns idle is charged on for up to 3 s. Of two samples the larger counts.
//   its word  A process has no sample in its first 2.5 s, and a start can take longer than that:
//             context and modules are made, and it is resident without running anything. If it has
//             the shim, it says what it has launched and whether it waits for that. While it is
//             young, its residence beyond one time slice (before that others may be waiting, and it
//             is not alone) is no use while it has nothing in flight: until kUnsampled by its word
//             alone, and then if its last two samples say so, too.
//   turn      Where jobs take turns a process waits at its gate, and samples of that time say that
//             it is idle. While it has the turn and works, residence is use, until a sample can
//             tell of that; not while it says that it rests.
//   otherwise residence is use, so that a cap bites.
// The word is the process's own. Its residence that was excused for it is charged after all when a
// sample contradicts it, and then its word counts no more; caps believe only so much of it in any
// case (cap_trust.h). Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

class LoneContext {
 public:
  // What a process with the shim says of itself; its launches only rise.
  struct Word {
    uint64_t launches = 0;
    bool waits = false;  // a thread waits for what was launched
  };

  // After this age only samples count, whether there are any or not: twice as long as 48 programs
  // took that started on an H200 (bench/results/starts.jsonl).
  static constexpr Nanos kYoung = std::chrono::seconds(30);
  // The first sample that counts is there by then, if there are any.
  static constexpr Nanos kUnsampled = std::chrono::seconds(5);
  // What was launched so long ago, and is not waited for, has ended, as far as can be told.
  static constexpr Nanos kRest = std::chrono::milliseconds(20);
  // A sample counts for so long.
  static constexpr Nanos kStale = std::chrono::seconds(3);

  // A sample of a process of this age. `thawed` is the part of the last second in which it could
  // run at all: what it did is scaled up to what it would do if let. Returns false if the sample
  // contradicts its word, for the first time.
  //   Example: capped at 30 % and saturating it is sampled at 0.27 with thawed = 0.3: 0.9, full.
  bool sample(double sm_fraction, double thawed, Nanos age, Time now) {
    if (age < kFirstSample) return true;  // part of that second was before it began
    double busy = thawed > kMinThawed ? std::min(1.0, sm_fraction / thawed) : 1.0;
    if (busy >= (thawed < 1 ? kSaturatedThawed : kSaturated)) busy = 1.0;
    if (busy < kIdle) busy = 0.0;
    rate_ = std::max(busy, latest_);
    latest_ = busy;
    sampled_ = now;
    const bool is_lie =
        sm_fraction >= kLie && is_at_rest(now) && now - rests_since_ >= kSampledBefore;
    if (is_lie) is_believed_ = false;
    return !is_lie;
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

  // Part of its residence that counts as use, by samples.
  double rate(Time now) const {
    const bool is_untold = now >= works_since_ && now <= works_until_ &&
                           now - works_since_ < kSampledBefore && !is_at_rest(now);
    return is_sampled(now) && !is_untold ? rate_ : 1.0;
  }

  // Whether it is resident without having anything to do, by its word.
  bool is_excused(Nanos age, Time now) const {
    if (!is_at_rest(now)) return false;
    if (age < kUnsampled) return !is_sampled(now) || latest_ == 0;
    return age < kYoung && is_sampled(now) && rate_ == 0;
  }
  // Whether a sample would tell whether its word is true.
  bool needs_sample(Time now) const { return heard_ != Time{} && now - heard_ <= kWordHolds; }

 private:
  static constexpr double kMinThawed = 0.05, kIdle = 0.01;
  // A saturating program is reported a little under 1: the driver counts whole sample points.
  static constexpr double kSaturated = 0.9, kSaturatedThawed = 0.7;
  static constexpr Nanos kFirstSample = std::chrono::milliseconds(2500);
  // A sample tells of nothing that was so long before it.
  static constexpr Nanos kSampledBefore = std::chrono::seconds(2);
  // The second of which a sample tells has most of what was before a shorter rest.
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

  double rate_ = 1, latest_ = 1;
  Time sampled_{};
  Word word_{};
  Time heard_{};             // zero: it has said nothing
  Time rests_since_{};       // may be to come; zero: it has never launched
  std::vector<Rest> rests_;  // before that, ascending
  bool is_believed_ = true;
  Time works_since_{}, works_until_{};  // the last time; Time::max(): it still does
  bool was_held_ = true;                // since it worked last
};

}  // namespace gpushare
