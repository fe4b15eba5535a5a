// SPDX-License-Identifier: Apache-2.0
// LengthMix: how long jobs are here, as far as it is known: the lengths of those that have finished
// on this machine, and two imagined jobs with which it starts. Of a job of which nothing is known
// but how much service it has had, index() says how much more one should expect to spend on it for
// each completion, if one stops at the best moment: the Gittins index, upside down. To run the
// smallest first gives the least mean completion time that is possible without knowing lengths:
// with all jobs of one length it lets each run to its end, and with very unlike ones it leaves a
// job that has outlived the short ones.
//
//   lengths 60 s (three of four) and 600 s; age 0: run to 60 s: expect to spend 60, of 3/4 of a
//   completion: 80 s. At 60 s and still there, it is a long one: 540 s.
//
// Lengths are kept in bins of a factor 1.25. The imagined jobs are 7.5 s x 2^j long, j = 0 to 8,
// each half as frequent as the one before. Pure values; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

class LengthMix {
 public:
  // Nothing has finished yet.
  LengthMix() : LengthMix(std::span<const Nanos>()) {}
  explicit LengthMix(std::span<const Nanos> finished);

  // In nanoseconds, at least 0: min over D of E[min(L - age, D)] / P(L - age <= D), with L longer
  // than `age`. Of a job that has outlived all that are known: its age, because what has lasted so
  // long is expected to last as long again.
  double index(Nanos age) const;

  // The least age above this one at which index() may jump upwards; below it, it only falls.
  // Nanos::max(): there is none.
  Nanos next_jump(Nanos age) const;

 private:
  // Jobs of about one length.
  struct Bin {
    double end;     // ns: each of them is at most so long
    double mean;    // ns
    double weight;  // how many they are
  };
  std::vector<Bin> bins_;  // ascending by end; none is empty
};

}  // namespace gpushare
