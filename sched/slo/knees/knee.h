// SPDX-License-Identifier: Apache-2.0
// The knee of a tenant is the fewest SM groups on which its iteration takes at most 5 % longer than
// on all that it can have. KneeFinder finds it while the tenant serves, in at most six samples, and
// never makes it miss its target: a share is tried only if the tenant would meet the target there
// even in the worst case. The worst case is a kernel whose blocks just fill the SMs: on one group
// less it takes a second wave and twice the time, and on half of the groups no longer than that.
//
//   KneeFinder finder(15, milliseconds(20));
//   while (const auto groups = finder.next()) {
//     ...give the tenant that many groups for some iterations...
//     finder.sample(*groups, mean);
//   }
//   finder.knee();
//
// The search halves between a share that is good and one that is not. Once one is not good, the
// knee is guessed from it, and the guess is tried. Six samples are enough for any knee of up to 16
// groups if the target is at least twice the time on all of them. With less slack nothing can be
// tried safely, and is_bounded() says that the true knee may be smaller. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

inline constexpr double kKneeTolerance = 0.05;

// Returns the knee of an offline sweep, where an iteration took seconds[i] on i + 1 groups: the
// fewest groups from which on no number takes over 5 % longer than all. Requires at least one
// value.
uint32_t knee_of_sweep(const std::vector<double>& seconds);

class KneeFinder {
 public:
  static constexpr uint32_t kMostSamples = 6;

  // The search starts at `widest`, the most groups that the tenant can have now. `slo` is its
  // target; 0 means that it has none.
  KneeFinder(uint32_t widest, Nanos slo);

  // Returns the number of groups to measure next, the same until sample() is called; nullopt when
  // the search is over.
  std::optional<uint32_t> next() const;
  // Requires next() == groups and mean > 0.
  void sample(uint32_t groups, Nanos mean);

  // Returns the best answer so far, which is `widest` before the first sample.
  uint32_t knee() const { return fewest_good_; }
  // Whether the true knee may be smaller, because it was not safe to look there or the samples were
  // used up.
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
