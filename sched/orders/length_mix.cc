// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/length_mix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

// The same bits on every machine.
#pragma STDC FP_CONTRACT OFF

namespace gpushare {
namespace {

constexpr double kFactor = 1.25;
constexpr double kFirstEnd = 1e6;  // ns
// The last bin ends at 1.25^160 ms: 101 years.
constexpr size_t kBins = 160;
constexpr double kImaginedJobs = 2;
constexpr Nanos kShortestImagined = std::chrono::milliseconds(7'500);
constexpr int kImaginedLengths = 9;

// By repeated multiplication: the same bits on every machine.
const std::array<double, kBins>& ends() {
  static const auto all = [] {
    std::array<double, kBins> ends;
    double end = kFirstEnd;
    for (double& one : ends) {
      one = end;
      end *= kFactor;
    }
    return ends;
  }();
  return all;
}

size_t bin_of(Nanos length) {
  const auto at = std::ranges::lower_bound(ends(), static_cast<double>(length.count()));
  return std::min(static_cast<size_t>(at - ends().begin()), kBins - 1);
}

}  // namespace

LengthMix::LengthMix(std::span<const Nanos> finished) {
  std::array<uint32_t, kBins> counts{};
  for (const Nanos length : finished) ++counts[bin_of(length)];
  for (size_t i = 0; i < kBins; ++i)
    if (counts[i] > 0)
      bins_.push_back(
          {ends()[i], ends()[i] * (1 + 1 / kFactor) / 2, static_cast<double>(counts[i])});
  double all = 0;
  for (int j = 0; j < kImaginedLengths; ++j) all += std::ldexp(1, -j);
  for (int j = 0; j < kImaginedLengths; ++j) {
    const auto length = static_cast<double>((kShortestImagined * (1 << j)).count());
    bins_.push_back({length, length, kImaginedJobs * std::ldexp(1, -j) / all});
  }
  std::ranges::sort(bins_, {}, &Bin::end);
}

double LengthMix::index(Nanos service) const {
  const double age = std::max(static_cast<double>(service.count()), 0.0);
  const auto first = std::ranges::upper_bound(bins_, age, {}, &Bin::end);
  double left = 0;  // jobs that are longer than `age` and not yet counted
  for (auto bin = first; bin != bins_.end(); ++bin) left += bin->weight;
  if (left <= 0) return age;
  double best = std::numeric_limits<double>::infinity();
  double done = 0, spent = 0;
  for (auto bin = first; bin != bins_.end(); ++bin) {
    const double longest = bin->end - age;
    const double usual = std::max(bin->mean - age, bin->mean < bin->end ? longest / 2 : longest);
    done += bin->weight;
    left -= bin->weight;
    spent += bin->weight * usual;
    best = std::min(best, (spent + std::max(left, 0.0) * longest) / done);
  }
  return best;
}

Nanos LengthMix::next_jump(Nanos service) const {
  const double age = std::max(static_cast<double>(service.count()), 0.0);
  const auto next = std::ranges::upper_bound(bins_, age, {}, &Bin::end);
  if (next == bins_.end() || next->end >= 9.2e18) return Nanos::max();
  return Nanos(static_cast<Nanos::rep>(next->end));
}

}  // namespace gpushare
