// SPDX-License-Identifier: Apache-2.0
// The knee of one tenant: the fewest groups of SMs on which its iteration takes at most 5 % longer
// than on all that it can have. Found while it serves, in at most six samples, without a miss of
// its SLO: a share is only tried when the tenant would meet the SLO there even in the worst case.
// That is a kernel whose blocks just fill the SMs: on one group less it takes a second wave, twice
// the time, and on half of them not longer than that.
//
//   KneeFinder finder(15, milliseconds(20));
//   while (const auto groups = finder.next()) {
//     ...give the tenant that many groups for some iterations...
//     finder.sample(*groups, mean);
//   }
//   finder.knee();
//
// Halving between a share that is still good and one that is not; once one is not, the place is
// guessed from it and the guess is tried. Six samples are enough for any knee of up to 16 groups
// when the SLO is at least twice the time on all of them; with less slack nothing can be tried
// safely, and is_bounded() says that the true knee may be smaller. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

inline constexpr double kKneeTolerance = 0.05;

// Of an offline sweep: seconds[i] on i + 1 groups. The fewest groups from which on none takes more
// than 5 % longer than all. Requires one value at least.
uint32_t knee_of_sweep(const std::vector<double>& seconds);

class KneeFinder {
 public:
  static constexpr uint32_t kMostSamples = 6;

  // widest: the most groups that it can have now, where the search starts. slo 0: none.
  KneeFinder(uint32_t widest, Nanos slo);

  // Where to measure next; nullopt: done. The same until sample().
  std::optional<uint32_t> next() const;
  // Requires next() == groups and mean > 0.
  void sample(uint32_t groups, Nanos mean);

  // The best answer so far; `widest` before the first sample.
  uint32_t knee() const { return fewest_good_; }
  // The true one may be smaller: it was not safe to look there, or the samples were used up.
  bool is_bounded() const { return !next().has_value() && most_bad_ + 1 < fewest_good_; }
  uint32_t samples() const { return samples_; }

 private:
  uint32_t fewest_safe() const;
  double guess() const;

  const uint32_t widest_;
  const double slo_;  // ns; 0: none
  uint32_t samples_ = 0;
  double best_ = 0;  // ns, on `widest`
  uint32_t fewest_good_;
  double fewest_good_ns_ = 0;
  uint32_t most_bad_ = 0;  // 0: none is known
  double most_bad_ns_ = 0;
  uint32_t bad_samples_ = 0;
};

}  // namespace gpushare
