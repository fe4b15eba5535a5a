// SPDX-License-Identifier: Apache-2.0
// Converts the GPU's clock (PTIMER, ns), in which the switch log is written, to CLOCK_MONOTONIC.
// The two are compared by reading the GPU's time between two readings of ours; the comparison with
// the shortest such window wins, so the error is at most half that window (a few us on an H200).
#pragma once

#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

class GpuClock {
 public:
  // Compares again when the last comparison is older than a second (the clocks drift). Cheap else.
  Result<> refresh(const RmClient& client, uint32_t gpu, Time now);
  Time to_monotonic(uint64_t gpu_ns) const {
    return Time(Nanos(static_cast<int64_t>(gpu_ns) + offset_ns_));
  }
  // Half the window of the comparison in use.
  Nanos error() const { return error_; }

 private:
  int64_t offset_ns_ = 0;  // ours minus the GPU's
  Nanos error_{};
  Time compared_{};
  bool is_set_ = false;
};

}  // namespace gpushare::nvrm
