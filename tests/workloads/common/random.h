// SPDX-License-Identifier: Apache-2.0
// Random: a small generator with the same sequence on every machine (SplitMix64: a counter whose
// values are mixed). One thread.
#pragma once

#include <cstdint>

namespace gpushare::workloads {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  // A number in [0, 1).
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace gpushare::workloads
