// SPDX-License-Identifier: Apache-2.0
// How long iterations take, in fixed space: a mean that follows the last 64, and for the 99th
// percentile a histogram with eight buckets for each power of two, halved every 1,000 values. Pure,
// one caller at a time.
#pragma once

#include <cstdint>

namespace gpushare::shim {

class IterationTimes {
  static constexpr uint32_t kOctaves = 40, kParts = 8;

 public:
  static constexpr uint64_t kLongestNs = (1ULL << kOctaves) - 1;  // 18 minutes
  // A time longer than kLongestNs counts as kLongestNs.
  void add(uint64_t period_ns, uint64_t busy_ns);
  uint64_t mean_ns() const { return static_cast<uint64_t>(mean_); }
  uint64_t busy_ns() const { return static_cast<uint64_t>(busy_); }
  // The upper edge of the bucket that holds it; up to 15 of the last values may not be in it yet.
  uint64_t p99_ns() const { return p99_ns_; }

 private:
  uint64_t percentile() const;

  double mean_ = 0, busy_ = 0;
  uint32_t count_ = 0;
  uint32_t in_histogram_ = 0;
  uint32_t added_ = 0;
  uint64_t p99_ns_ = 0;
  uint16_t buckets_[kOctaves * kParts] = {};
};

}  // namespace gpushare::shim
