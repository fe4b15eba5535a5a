// SPDX-License-Identifier: Apache-2.0
// Lateness: by how much a thread of this machine comes too late when its time has come, measured
// while it lives. A test of what the agent does in time allows for it: the agent, a program like
// any other, comes as late.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>

#include "shmctl/base/clock.h"

namespace gpushare::test {

class Lateness {
 public:
  // The mean since it was made. Any thread.
  Nanos mean() const {
    const int64_t looks = looks_.load(), late = late_ns_.load();
    return Nanos(looks == 0 ? 0 : late / looks);
  }
  // The longest of all since then; one that is not over yet does not count. Any thread.
  Nanos longest() const { return Nanos(longest_ns_.load()); }

 private:
  void measure(const std::stop_token& stop) {
    const MonotonicClock clock;
    while (!stop.stop_requested()) {
      const Time due = clock.now() + std::chrono::milliseconds(1);
      std::this_thread::sleep_until(due);
      const int64_t late = std::max<Nanos>(clock.now() - due, Nanos{}).count();
      late_ns_ += late;
      ++looks_;
      if (late > longest_ns_) longest_ns_ = late;
    }
  }

  std::atomic<int64_t> looks_{0}, late_ns_{0}, longest_ns_{0};
  std::jthread thread_{[this](const std::stop_token& stop) { measure(stop); }};
};

}  // namespace gpushare::test
