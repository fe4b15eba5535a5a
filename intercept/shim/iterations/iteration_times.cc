// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration_times.h"

#include <algorithm>

namespace gpushare::shim {
namespace {

constexpr uint32_t kMemory = 64;
constexpr uint32_t kHalveAt = 1000;
constexpr uint32_t kFollow = 16;

}  // namespace

void IterationTimes::add(uint64_t period_ns, uint64_t busy_ns) {
  period_ns = std::min(period_ns, kLongestNs);
  busy_ns = std::min(busy_ns, kLongestNs);
  if (count_ < kMemory) ++count_;
  mean_ += (static_cast<double>(period_ns) - mean_) / count_;
  busy_ += (static_cast<double>(busy_ns) - busy_) / count_;

  const uint64_t value = period_ns | kParts;
  const uint32_t octave = 63 - static_cast<uint32_t>(__builtin_clzll(value));
  const uint32_t part = static_cast<uint32_t>(value >> (octave - 3)) & (kParts - 1);
  ++buckets_[octave * kParts + part];
  if (++in_histogram_ >= kHalveAt) {
    in_histogram_ = 0;
    for (uint16_t& bucket_count : buckets_) in_histogram_ += bucket_count /= 2;
  }
  // Not each time, as it takes as long as recognising ten launches.
  const bool is_due = added_ % kFollow == 0;
  ++added_;
  if (is_due || added_ < kFollow) p99_ns_ = percentile();
}

uint64_t IterationTimes::percentile() const {
  uint32_t above = in_histogram_ / 100;
  uint32_t i = kOctaves * kParts - 1;
  for (; i > 0; --i) {
    if (buckets_[i] > above) break;
    above -= buckets_[i];
  }
  const uint32_t octave = i / kParts;
  return ((1ULL << octave) + ((1ULL * (i % kParts) + 1) << octave >> 3));
}

}  // namespace gpushare::shim
