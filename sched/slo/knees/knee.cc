// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/knees/knee.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace gpushare {

uint32_t knee_of_sweep(const std::vector<double>& seconds) {
  assert(!seconds.empty());
  auto knee = static_cast<uint32_t>(seconds.size());
  while (knee > 1 && seconds[knee - 2] <= seconds.back() * (1 + kKneeTolerance)) --knee;
  return knee;
}

KneeFinder::KneeFinder(uint32_t widest, Nanos slo)
    : widest_(widest), slo_(static_cast<double>(slo.count())), fewest_good_(widest) {
  assert(widest >= 1);
}

std::optional<uint32_t> KneeFinder::next() const {
  if (samples_ == 0) return widest_;
  if (samples_ >= kMostSamples || most_bad_ + 1 >= fewest_good_) return std::nullopt;
  uint32_t groups = (most_bad_ + fewest_good_) / 2;
  if (const double guessed = guess(); guessed > most_bad_ && guessed < fewest_good_)
    groups = static_cast<uint32_t>(std::ceil(guessed));
  groups = std::clamp(groups, std::max(most_bad_ + 1, fewest_safe()), fewest_good_);
  if (groups == fewest_good_) {
    --groups;
    if (groups <= most_bad_ || groups < fewest_safe()) return std::nullopt;
  }
  return groups;
}

// Where it should be good again, by the first share that is not if time goes as 1 / groups below
// the knee; and when the place so found is not good either, as a + b / groups.
double KneeFinder::guess() const {
  const double good = best_ * (1 + kKneeTolerance);
  if (bad_samples_ == 0) return 0;
  if (bad_samples_ == 1) return most_bad_ * most_bad_ns_ / good;
  const double b = (most_bad_ns_ - best_) / (1.0 / most_bad_ - 1.0 / widest_);
  const double a = best_ - b / widest_;
  return b / (good - a);
}

// Whatever was measured on fewer groups and met the SLO makes all above it safe.
uint32_t KneeFinder::fewest_safe() const {
  if (slo_ == 0) return 1;
  if (most_bad_ > 0 && most_bad_ns_ <= slo_) return most_bad_ + 1;
  const auto waves = static_cast<uint32_t>(slo_ / fewest_good_ns_);
  return waves == 0 ? fewest_good_ : (fewest_good_ + waves - 1) / waves;
}

void KneeFinder::sample(uint32_t groups, Nanos mean) {
  assert(next() == groups && mean.count() > 0);
  const auto ns = static_cast<double>(mean.count());
  if (samples_++ == 0) best_ = ns;
  if (ns <= best_ * (1 + kKneeTolerance)) {
    fewest_good_ = groups;
    fewest_good_ns_ = ns;
  } else {
    most_bad_ = groups;
    most_bad_ns_ = ns;
    ++bad_samples_;
  }
}

}  // namespace gpushare
