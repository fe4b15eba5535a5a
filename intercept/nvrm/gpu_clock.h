// SPDX-License-Identifier: Apache-2.0
// GpuClock: converts the GPU's clock (PTIMER, in ns), in which the switch log is written, to
// CLOCK_MONOTONIC. A comparison reads the GPU's time between two readings of the machine's; of
// five, the one with the shortest such window counts, so the error is at most half that window (a
// few us on an H200). When the driver answers slowly, as it does while programs start, fewer
// readings are made, and one that says less than the comparison in use is dropped. The thread of
// the SwitchLog calls.
#pragma once

#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

class GpuClock {
 public:
  // Compares the clocks when the last comparison is older than a second, because they drift;
  // otherwise does nothing. Errors: those of rm_error().
  Result<> refresh(const RmClient& client, uint32_t gpu, Time now);
  // Requires a successful refresh() before.
  Time to_monotonic(uint64_t gpu_ns) const {
    return Time(Nanos(static_cast<int64_t>(gpu_ns) + offset_ns_));
  }
  // The latest that to_monotonic() returns of what has happened by `now`, unless one of the clocks
  // has jumped, as they do where the machine was paused and the GPU was not. Then forget().
  Time latest(Time now) const;
  // The comparison in use is wrong: the next refresh() makes one whatever its error.
  void forget() { is_set_ = false; }
  // The largest error of to_monotonic() at the comparison in use: half its window. The clocks drift
  // apart from then on.
  Nanos error() const { return error_; }

 private:
  int64_t offset_ns_ = 0;  // the machine's time minus the GPU's
  Nanos error_{};
  Time compared_{}, asked_{};  // the comparison in use, and the last one
  bool is_set_ = false;
};

}  // namespace gpushare::nvrm
