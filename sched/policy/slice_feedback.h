// SPDX-License-Identifier: Apache-2.0
// Corrects slices by what the switch log measured, because a slice in proportion to the target does
// not give the target exactly: a slice has a least length, and a program that yields between
// kernels uses only part of its turn. Two integral controllers, stepped once a
// window of about 0.2 s: a factor on the slice of each process that uses its turns, so that these
// get time in the ratio of their targets; and a factor on the round, shortened while a process that
// yields early and comes back every round gets less than its target. A window measures no finer
// than a turn, so a correction that was found is refined ever more slowly until something changes:
// otherwise many programs would have their slices set all the time for noise. Pure.
//   Targets 30/70, the first yields after 2 ms: with a round of 20 ms it gets 2 of 16 ms, 12.5 %;
//   with one of 6.67 ms it gets 2 of 6.67 ms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

class SliceFeedback {
 public:
  // A process that had the right to run, and wanted to, since the last call.
  struct Sample {
    uint32_t process = 0;  // ProcessView::id
    double target = 0;     // > 0
    Micros slice{};        // as enforced
    Nanos used{};          // since the last call
    uint32_t turns = 0;
  };

  explicit SliceFeedback(size_t slots) : account_(slots) {}

  // Ascending by process. Only a process that is in every call of a window, and has one slice in
  // it, counts in it. `shortest_round` is the least useful round factor, where the smallest slice
  // is its minimum.
  void observe(Time now, std::span<const Sample> samples, double shortest_round);

  // The slot has a new process.
  void forget(uint32_t process) { account_[process] = {}; }

  // False: it yielded early through the last whole window, so no longer slice would serve it
  // better.
  bool uses_slice(uint32_t process) const { return account_[process].uses_slice; }
  double slice_factor(uint32_t process) const;  // 1/4..4
  double round_factor() const;                  // shortest_round..1
  // When observe() is due; Time::max(): nothing to do.
  Time window_end() const { return window_end_; }

 private:
  struct Account {
    double log_factor = 0;
    double share = 0;    // that was due in the last window, of those that use their slices
    double settled = 0;  // windows in a row without a change
    bool uses_slice = true;
    uint64_t last_call = 0;
    uint32_t calls = 0;  // in this window, without a gap and with the same slice
    Micros slice{};      // in the last call
    Nanos used{};
    uint32_t turns = 0;
  };
  struct Closed {  // one process over a whole window
    uint32_t process;
    double target, used, turns, slice;
    bool uses_slice;
  };

  void begin_window(Time now, std::span<const Sample> samples);
  void close_window(Time now, std::span<const Sample> samples, double shortest_round);
  void correct_slices(std::span<const Closed> all);
  void correct_round(std::span<const Closed> all, double window_ns, double shortest_round);

  std::vector<Account> account_;  // by process
  uint64_t call_ = 0;
  uint32_t calls_in_window_ = 0;
  Time window_began_{};
  Time window_end_{Time::max()};
  double log_round_ = 0;
};

}  // namespace gpushare
