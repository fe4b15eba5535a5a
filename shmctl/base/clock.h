// SPDX-License-Identifier: Apache-2.0
// The types of time that every layer uses. All points in time are CLOCK_MONOTONIC
// (std::chrono::steady_clock) in nanoseconds; only the heads of exported files hold wall-clock
// time. Code that decides takes `now` as an argument; code that waits takes a Clock, so that its
// tests run in virtual time.
#pragma once

#include <chrono>
#include <cstdint>

namespace gpushare {

using namespace std::chrono_literals;  // 60s, 200ms, 80us

using Nanos = std::chrono::nanoseconds;
using Micros = std::chrono::microseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Nanos>;

// As records and messages hold a point in time: nanoseconds of CLOCK_MONOTONIC.
inline uint64_t stored_ns(Time time) {
  return static_cast<uint64_t>(time.time_since_epoch().count());
}

// Where code that waits reads the time. now() of a clock never goes backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

// The machine's own clock; any thread may read it.
class MonotonicClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
};

// A clock for tests and the simulation: it stands still until it is advanced. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }
  void set(Time to) { now_ = to; }

 private:
  Time now_{};
};

}  // namespace gpushare
