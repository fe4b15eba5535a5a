// SPDX-License-Identifier: Apache-2.0
// How long iterations took, counted in classes whose bounds are fixed: the shim counts in the slot
// of its process, the agent adds up what a tenant's processes have counted, and the exporter shows
// the sums as a histogram. The bounds rise in steps of 1, 2 and 5, so that a person reads them
// easily: from 100 us, which is little more than a few launches, to 100 s, which is longer than any
// iteration of a training or of a language model that we have seen. Constants and plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpushare {

// Of each class the longest time that belongs to it, in us; what is longer is in the last class,
// which has no bound.
inline constexpr std::array<uint64_t, 19> kTimeBoundsUs = {
    100,       200,        500,        1'000,      2'000,      5'000,     10'000,
    20'000,    50'000,     100'000,    200'000,    500'000,    1'000'000, 2'000'000,
    5'000'000, 10'000'000, 20'000'000, 50'000'000, 100'000'000};
inline constexpr std::size_t kTimeClasses = kTimeBoundsUs.size() + 1;

constexpr std::size_t time_class_of(uint64_t us) {
  std::size_t at = 0;
  while (at < kTimeBoundsUs.size() && us > kTimeBoundsUs[at]) ++at;
  return at;
}

struct TimeHistogram {
  uint64_t sum_us = 0;
  std::array<uint64_t, kTimeClasses> counts{};

  bool operator==(const TimeHistogram&) const = default;
};

}  // namespace gpushare
