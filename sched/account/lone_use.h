// SPDX-License-Identifier: Apache-2.0
// LoneUse: what a process was resident for lately, until a sample of the driver has told how much
// of that was use. Beside others the switch log is exact; of a process that is alone it only says
// that it is resident, and what is charged for that at once is a guess (lone_context.h). A sample
// tells for how much of a span the GPU was busy. What the log does not account for of that is its
// use while it was alone, and what was charged too little or too much is set right:
//   busy for 120 of 200 ms; 40 of these were its turns beside others; of the other 160, alone, 20
//   ms had been charged -> 80 - 20 = 60 ms more
// Spans that no sample tells of within kKept stay as they were charged; caps count them in full.
// Pure.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

class LoneUse {
 public:
  // More than the longest time after which a sample is there: the driver makes five a second, and
  // the agent may wait for them while programs start, for a second.
  static constexpr Nanos kKept = std::chrono::seconds(3);
  // The stretches of a capped program are as many as its thaws. Older ones stay as charged.
  static constexpr size_t kMost = 512;

  // Of what is sampled at so much of the time in which it ran, all was use: the driver counts whole
  // sample points, and fewer of a process that is frozen now and then.
  static constexpr double kSaturated = 0.9, kSaturatedFrozen = 0.7;

  // Resident beside others, or not surely alone; all of it is charged.
  void add_shared(Time from, Time until) { add({from, until, until - from, 1, Kind::kShared}); }
  // Resident alone, and charged at this rate. By its word alone: at none.
  void add_alone(Time from, Time until, double rate) {
    add({from, until, until - from, rate, Kind::kByRate});
  }
  void add_by_word(Time from, Time until) { add({from, until, until - from, 0, Kind::kByWord}); }

  struct Told {
    Nanos alone{};     // for so long it was resident alone in this span
    Nanos used{};      // and used so much of that
    double rate = -1;  // that part; < 0: it was not alone for long enough to tell
  };
  // For how long it was resident beside others in this span.
  Nanos shared(Time from, Time until) const;
  // A sample: from `from` until `until` the GPU was busy for `busy`, less the turns of others. What
  // is known of that time is forgotten with it. `correct` is called with a part of the time, and
  // what is to be added to its charge.
  Told settle(Time from, Time until, Nanos busy,
              const std::function<void(Time from, Time until, Nanos more)>& correct);

  // What was not charged of the time that no sample has told of: by a rate, and by its word.
  struct Spared {
    Nanos by_rate{}, by_word{};
  };
  // It has ended: no sample will tell more.
  Spared close() { return drop(stretches_.size()); }
  // Of what is older than kKept, or too much.
  Spared forget(Time now);
  // Whether a sample would tell something.
  bool is_open() const {
    return std::ranges::any_of(
        stretches_, [](const Stretch& stretch) { return stretch.kind != Kind::kShared; });
  }

 private:
  static constexpr double kWhole = 0.95;  // of the span: it was not frozen
  // Of less the whole percents of a sample tell nothing.
  static constexpr Nanos kLeast = std::chrono::milliseconds(10);

  // Turns beside others are one stretch as far as they lie in so much time: only their sum counts.
  static constexpr Nanos kJoined = std::chrono::milliseconds(20);

  enum class Kind { kShared, kByRate, kByWord };
  struct Stretch {
    Time from{}, until{};
    Nanos resident{};  // of that
    double rate = 1;   // at which it was charged
    Kind kind{};

    Nanos charged() const;
    // The part of it until then, which is within it; it begins then.
    Stretch cut(Time at);
  };

  void add(const Stretch& stretch);
  Spared drop(size_t count);

  std::vector<Stretch> stretches_;  // ascending, apart
};

}  // namespace gpushare
