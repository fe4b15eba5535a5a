// SPDX-License-Identifier: Apache-2.0
// Quantiles: order statistics of a sample that fits in memory. Constant once made; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace gpushare::workloads {

class Quantiles {
 public:
  // Requires that the sample is not empty.
  explicit Quantiles(std::vector<double> sample) : sorted_(std::move(sample)) {
    std::sort(sorted_.begin(), sorted_.end());
  }

  // The smallest value that at least the fraction `p` of the sample does not exceed.
  double at(double p) const {
    const double rank = std::ceil(p * static_cast<double>(sorted_.size()));
    return sorted_[std::max<size_t>(static_cast<size_t>(rank), 1) - 1];
  }
  double min() const { return sorted_.front(); }
  double max() const { return sorted_.back(); }
  double mean() const {
    return std::accumulate(sorted_.begin(), sorted_.end(), 0.0) /
           static_cast<double>(sorted_.size());
  }

 private:
  std::vector<double> sorted_;
};

}  // namespace gpushare::workloads
