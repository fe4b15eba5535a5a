// SPDX-License-Identifier: Apache-2.0
// What the tests of Accounting share: two processes, and a log that they write.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sched/account/accounting.h"

namespace gpushare::test {

class AccountingTest : public ::testing::Test {
 protected:
  static constexpr pid_t kA = 10, kB = 20;
  static Time at(Nanos since_start) { return Time(std::chrono::seconds(100)) + since_start; }

  Accounting accounting_{/*has_log=*/true};
  SwitchBatch batch_;

  void SetUp() override {
    accounting_.add(kA, at({}));
    accounting_.add(kB, at({}));
    accounting_.consume({{}, 0, at({})});
  }
  void start(Nanos when, pid_t pid) { batch_.records.push_back({at(when), 0, pid, 0, true}); }
  void stop(Nanos when, pid_t pid) { batch_.records.push_back({at(when), 0, pid, 0, false}); }
  // The driver samples A at this part of the time; B did nothing.
  void sample(double fraction, Nanos from, Nanos until) {
    accounting_.sample(
        {.from = at(from), .until = at(until), .busy = fraction, .of = {{kA, fraction}}},
        at(until));
  }
  void consume(Nanos until, uint64_t lost = 0) {
    batch_.complete_until = at(until);
    batch_.lost = lost;
    accounting_.consume(std::exchange(batch_, {}));
  }
  // A and B take turns of 1 and 3 ms from `from` to `to`.
  void alternate(Nanos from, Nanos to) {
    for (Nanos t = from; t < to; t += std::chrono::milliseconds(4)) {
      start(t, kA);
      stop(t + std::chrono::milliseconds(1), kA);
      start(t + std::chrono::milliseconds(1), kB);
      stop(t + std::chrono::milliseconds(4), kB);
    }
    consume(to);
  }
};

}  // namespace gpushare::test
