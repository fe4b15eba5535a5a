// SPDX-License-Identifier: Apache-2.0
// How long the processes of a tenant waited for a GPU, in the terms of the kernel's pressure stall
// information (PSI) and of cgroup v2's cpu.stat. Pure: the times come in, and any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "shmctl/base/clock.h"

namespace gpushare {

// What one process did on one GPU between two looks.
struct Turn {
  uint32_t gpu = 0;
  bool is_at_once = false;  // programs run at once on this GPU, not one after the other
  bool wants_gpu = false;   // it has work, also while it is frozen
  Nanos used{};             // GPU time that it had
};

// Of the time between two looks: `some` while at least one process wanted a GPU and did not have
// it, `full` while all that wanted one did not.
struct Waited {
  Nanos some{}, full{};

  bool operator==(const Waited&) const = default;
};

// `turns`: those of all processes of one tenant. `passed`: from look to look. Where programs take
// turns only one has the GPU at a time: with two that want it, one always waits, and all wait while
// neither has it. With several GPUs `some` is that of the GPU where it was longest, and `full` that
// where it was shortest. 0 <= full <= some <= passed.
//   one of 2 programs, 30 of 100 ms: some 70, full 70      both of one tenant, 30 and 60: 100, 10
Waited waited(std::span<const Turn> turns, Nanos passed);

// The three averages of PSI, and the sum. A part of the time in [0, 1].
class Pressure {
 public:
  static constexpr Nanos kStep = std::chrono::seconds(2);  // the averages change so often, as PSI's

  // `waited` of the `passed` time, which follows upon the time before.
  void add(Nanos waited, Nanos passed);

  Nanos total() const { return total_; }
  double avg10() const { return averages_[0]; }
  double avg60() const { return averages_[1]; }
  double avg300() const { return averages_[2]; }

 private:
  Nanos total_{};
  Nanos waited_{}, passed_{};  // since the averages changed last
  double averages_[3] = {};
};

// Counts the periods of a cap, as cpu.stat's nr_periods and nr_throttled: those in which the tenant
// had work, and those of them in which the cap froze it.
class CapPeriods {
 public:
  // In the `passed` time up to `now` the tenant had work or not, and was frozen for `throttled` of
  // it. `period`: of its cap now; 0: it has none, and nothing is counted.
  void add(Time now, Nanos passed, Nanos period, bool has_work, Nanos throttled);

  uint64_t periods() const { return periods_; }
  uint64_t throttled() const { return throttled_periods_; }

 private:
  uint64_t periods_ = 0, throttled_periods_ = 0;
  bool had_work_ = false;  // in the period that is not over
  Nanos throttled_{};      // in that period
};

}  // namespace gpushare
