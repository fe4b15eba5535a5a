// SPDX-License-Identifier: Apache-2.0
// ProgressMeter: the rate of work between two instants, from readings of a total at any times: the
// total at each instant is interpolated between the readings on both sides of it. Constant memory;
// one thread.
#pragma once

#include <cstdint>

namespace gpushare::workloads {

class ProgressMeter {
 public:
  // Measures between `from_ns` and `to_ns`, both CLOCK_MONOTONIC.
  ProgressMeter(uint64_t from_ns, uint64_t to_ns) : from_{from_ns}, to_{to_ns} {}

  // Takes readings in the order of their time; the first may come after from_ns.
  void add(uint64_t time_ns, double total) {
    from_.add(time_ns, total, last_ns_, last_total_);
    to_.add(time_ns, total, last_ns_, last_total_);
    last_ns_ = time_ns;
    last_total_ = total;
  }

  // The work per millisecond. Readings that end early end the interval early; 0 without readings.
  double per_ms() const {
    const uint64_t begin = from_.is_known ? from_.instant_ns : last_ns_;
    const uint64_t end = to_.is_known ? to_.instant_ns : last_ns_;
    if (end <= begin) return 0;
    const double done = (to_.is_known ? to_.total : last_total_) - from_.total;
    return done * 1e6 / static_cast<double>(end - begin);
  }
  double measured_ms() const {
    const uint64_t end = to_.is_known ? to_.instant_ns : last_ns_;
    return from_.is_known && end > from_.instant_ns
               ? static_cast<double>(end - from_.instant_ns) / 1e6
               : 0;
  }

 private:
  struct Mark {
    uint64_t instant_ns;
    bool is_known = false;
    double total = 0;

    void add(uint64_t time_ns, double now, uint64_t last_ns, double last_total) {
      if (is_known || time_ns < instant_ns) return;
      is_known = true;
      if (last_ns == 0) {  // the first reading is already past: the interval begins there
        instant_ns = time_ns;
        total = now;
        return;
      }
      const double part = time_ns == last_ns ? 1
                                             : static_cast<double>(instant_ns - last_ns) /
                                                   static_cast<double>(time_ns - last_ns);
      total = last_total + (now - last_total) * part;
    }
  };

  Mark from_, to_;
  uint64_t last_ns_ = 0;
  double last_total_ = 0;
};

}  // namespace gpushare::workloads
