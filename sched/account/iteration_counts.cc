// SPDX-License-Identifier: Apache-2.0
#include "sched/account/iteration_counts.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gpushare {
namespace {

// What the agent reads is up to a step old.
constexpr Nanos kSlack = std::chrono::milliseconds(100);
// The longest time of the class without a bound.
constexpr uint64_t kLongestUs = 1'000'000'000;

uint64_t shortest_us(std::size_t at) { return at == 0 ? 0 : kTimeBoundsUs[at - 1]; }
uint64_t longest_us(std::size_t at) {
  return at < kTimeBoundsUs.size() ? kTimeBoundsUs[at] : kLongestUs;
}

}  // namespace

TimeHistogram IterationCounts::take(const TimeHistogram& said, Time now) {
  bool has_fallen = said.sum_us < last_.sum_us;
  for (std::size_t i = 0; i < kTimeClasses; ++i) has_fallen |= said.counts[i] < last_.counts[i];
  if (has_fallen) last_ = {};
  TimeHistogram gain;
  uint64_t count = 0, least = 0, most = 0;
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    gain.counts[i] = said.counts[i] - last_.counts[i];
    count += gain.counts[i];
    least += gain.counts[i] * shortest_us(i);
    most += gain.counts[i] * longest_us(i);
  }
  gain.sum_us = std::clamp(said.sum_us - last_.sum_us, least, most);
  const Time before = std::exchange(looked_, now);
  last_ = said;
  if (before == Time{}) return gain;
  const double seconds = std::chrono::duration<double>(now - before + kSlack).count();
  return static_cast<double>(count) > kMostInASecond * seconds ? TimeHistogram{} : gain;
}

void add(TimeHistogram& sum, const TimeHistogram& more) {
  sum.sum_us += more.sum_us;
  for (std::size_t i = 0; i < kTimeClasses; ++i) sum.counts[i] += more.counts[i];
}

}  // namespace gpushare
