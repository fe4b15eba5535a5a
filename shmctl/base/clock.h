// SPDX-License-Identifier: Apache-2.0
// Time, for every layer. All points in time are CLOCK_MONOTONIC (std::chrono::steady_clock) in
// nanoseconds; nothing in the project keeps wall-clock time except the heads of exported files.
// Code that decides takes `now` as an argument; code that waits takes a Clock, so that tests run in
// virtual time.
#pragma once

#include <chrono>

namespace gpushare {

using Nanos = std::chrono::nanoseconds;
using Micros = std::chrono::microseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Nanos>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
};

// For tests and the simulation: stands still until advanced. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }
  void set(Time to) { now_ = to; }

 private:
  Time now_{};
};

}  // namespace gpushare
