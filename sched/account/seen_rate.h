// SPDX-License-Identifier: Apache-2.0
// SeenRate: what a process does at least, as samples have told to within their noise. Of each span
// the driver tells how busy the GPU was in all, and the log for how long it held whom: if all the
// others had worked all the time that it held them, this one still worked for the rest
// (division.h). That is taken for a part of the time for which it is held and of all time, and the
// smaller one counts:
//   A works for 20 ms of each 200, and is held for 200 ms where nobody comes after it: 20 ms, also
//   if it was once seen to work for all of the 20 ms that it was held
// Pure.
#pragma once

#include <algorithm>
#include <array>

#include "sched/account/scaled.h"
#include "shmctl/base/clock.h"

namespace gpushare {

class SeenRate {
 public:
  // What was seen counts for four to eight seconds: the turns of two programs of which one is
  // frozen for its cap now and then meet in all ways meanwhile.
  static constexpr Nanos kHalf = std::chrono::seconds(4);
  // Held for a smaller part of the span, what a sample may be wrong by is much of what it did.
  static constexpr int kLeastPart = 10;

  // In a span until then the GPU held it for so long, and it worked for so long of that at least;
  // the GPU was busy for so long.
  void note(Nanos least, Nanos busy, Nanos held, Nanos span, Time until) {
    if (held <= Nanos{} || held < span / kLeastPart) return;
    if (until - begun_ >= kHalf) {
      const bool is_old = until - begun_ >= 2 * kHalf;
      halves_ = {is_old ? Rates{} : halves_[1], Rates{}};
      begun_ = is_old ? until : begun_ + kHalf;
    }
    halves_[1].of_held = std::max(halves_[1].of_held, part(least, held));
    halves_[1].of_time = std::max(halves_[1].of_time, part(least, span));
    // It worked no more than the GPU did.
    for (Rates& rates : halves_) rates.of_held = std::min(rates.of_held, part(busy, held));
  }

  // Of what it is held for in a span until then. Zero: it is not known to have worked.
  Nanos least(Nanos held, Nanos span, Time until) const {
    const Nanos age = until - begun_;
    const Rates older = age < kHalf ? halves_[0] : Rates{};
    const Rates newer = age < 2 * kHalf ? halves_[1] : Rates{};
    return std::min(scaled(held, std::max(older.of_held, newer.of_held)),
                    scaled(span, std::max(older.of_time, newer.of_time)));
  }

 private:
  struct Rates {
    double of_held = 0, of_time = 0;
  };
  static double part(Nanos time, Nanos of) {
    return std::clamp(std::chrono::duration<double>(time) / of, 0.0, 1.0);
  }

  std::array<Rates, 2> halves_{};  // the largest of the older one, and of that which has begun
  Time begun_{};
};

}  // namespace gpushare
