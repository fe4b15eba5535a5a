// SPDX-License-Identifier: Apache-2.0
// Escape: whether a process runs while it is frozen, on channels that nobody has frozen because
// nobody knows them. A program can hide from the observer that it makes a context. Two things tell:
//   the switch log   a turn that begins after the freeze. A thaw is entered after the driver has
//                    carried it out, so a turn counts only if no thaw follows soon.
//   samples          of a context alone the log says nothing. The driver's samples give all that
//                    the GPU did to the process that it holds; those of eight seconds add up to
//                    more than this one was thawed in those and two more, by which one may be late.
//                      Example: at work alone with a cap of 20 %, 8 > 10 * 0.2: it runs frozen.
// It proves nothing: it is a reason to ask the driver what the process has. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "shmctl/base/clock.h"

namespace gpushare {

class Escape {
 public:
  // A turn began though it was frozen.
  void ran(Time at) {
    if (ran_ == Time{}) ran_ = at;
  }
  // It was thawed by then: what began less than `late` before began because of that.
  void thawed(Time at, Nanos late) {
    if (ran_ != Time{} && at - ran_ < late) ran_ = {};
  }
  // The part of the last second in which it was busy, and in which it was thawed, 0 to 1.
  void sample(double busy, double thawed) {
    shift(busy_, busy);
    shift(thawed_, thawed);
    is_busy_frozen_ |= sum(busy_) > sum(thawed_) + kNoise;
  }
  // Whether take() may have something to tell, now or later.
  bool is_suspected() const { return is_busy_frozen_ || ran_ != Time{}; }
  // Whether it has, by what is known of the time until `now`; once for what it was told.
  bool take(Time now, Nanos late) {
    bool is_seen = is_busy_frozen_;
    is_busy_frozen_ = false;
    if (ran_ != Time{} && now - ran_ >= late) {
      ran_ = {};
      is_seen = true;
    }
    return is_seen;
  }

 private:
  static constexpr double kNoise = 0.25;  // of all samples together, in seconds

  static void shift(auto& list, double newest) {
    std::shift_left(list.begin(), list.end(), 1);
    list.back() = newest;
  }
  static double sum(const auto& list) { return std::accumulate(list.begin(), list.end(), 0.0); }

  Time ran_{};  // zero: it has not
  bool is_busy_frozen_ = false;
  std::array<double, 8> busy_{};
  // Nothing is known of the time before it came.
  std::array<double, 10> thawed_{1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
};

}  // namespace gpushare
