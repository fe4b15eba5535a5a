// SPDX-License-Identifier: Apache-2.0
// LoneUse: what a process was resident for lately, until a sample of the driver has told how much
// of that was use. Beside others the switch log is exact; of a process that is alone it only says
// that it is resident, and what it is taken to have used of that is a guess (lone_context.h). A
// sample tells for how much of a span the GPU was busy. What the log does not account for of that
// is the use of who was alone (division.h), and what was presumed is set right:
//   busy for 120 of 200 ms; 40 of these were its turns beside others; of the other 160, alone, 20
//   ms had been presumed -> 80 - 20 = 60 ms more
// Spans that no sample tells of within kKept stay as they were presumed; caps count them in full.
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
  // The stretches of a capped program are as many as its thaws. Older ones stay as presumed.
  static constexpr size_t kMost = 512;

  // Resident beside others, or not surely alone; all of it is use, but for the switching.
  void add_shared(Time from, Time until, Nanos switching = {}) {
    add({from, until, until - from - switching, {}, 1, Kind::kShared});
  }
  // Resident alone, and taken to be busy at this rate. Returns what that is of the time.
  Nanos add_alone(Time from, Time until, double rate);
  // Resident alone, and by its word alone at rest.
  void add_by_word(Time from, Time until) {
    add({from, until, until - from, {}, 0, Kind::kByWord});
  }
  // One has ended of which no sample will be looked for any more, and has been charged: the GPU
  // held it all the same.
  void absorb(const LoneUse& ended);

  enum class Kind { kShared, kByRate, kByWord };
  struct Stretch {
    Time from{}, until{};
    Nanos resident{}, presumed{};  // of that
    double rate = 1;               // at which it was presumed
    Kind kind{};

    // The part of it until then, which is within it; it begins then.
    Stretch cut(Time at);
  };
  // What it did in a span.
  struct Told {
    std::vector<Stretch> alone_in{};
    Nanos shared{}, alone{}, presumed{};  // presumed: of the time alone
    Nanos at_rest{};                      // of the time alone, by its word

    // It used so much of the time alone: `correct` is called with each part of that, and what is
    // to be added to what was presumed there.
    void spread(Nanos used,
                const std::function<void(Time from, Time until, Nanos more)>& correct) const;
    // The part that this is of the time alone; < 0: that is too short to tell.
    double rate(Nanos used) const;
  };
  // All of that span, which is forgotten with it.
  Told take(Time from, Time until);

  // Samples are not asked what of it was use any more: as much as was presumed. Returns that.
  Nanos conclude();

  // What no sample will tell of any more.
  struct Untold {
    Nanos presumed{};
    Nanos spared_by_rate{}, spared_by_word{};  // what was not presumed of the time alone

    void add(const Stretch& stretch);
  };
  Untold close() { return drop(stretches_.size()); }
  // Of what is older than kKept, or too much.
  Untold forget(Time now);
  // Whether a sample would tell something.
  bool is_open() const {
    return std::ranges::any_of(
        stretches_, [](const Stretch& stretch) { return stretch.kind != Kind::kShared; });
  }

 private:
  // Of less the whole percents of a sample tell nothing.
  static constexpr Nanos kLeast = std::chrono::milliseconds(10);

  // Turns beside others are one stretch as far as they lie in so much time: only their sum counts.
  static constexpr Nanos kJoined = std::chrono::milliseconds(20);

  void add(const Stretch& stretch);
  Untold drop(size_t count);

  std::vector<Stretch> stretches_;  // by their begin
};

}  // namespace gpushare
