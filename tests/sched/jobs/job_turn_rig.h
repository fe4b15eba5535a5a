// SPDX-License-Identifier: Apache-2.0
// A job of one process, and what the driver and the shim would do, for the tests of its turns.
#pragma once

#include <gtest/gtest.h>

#include "sched/jobs/job_turn.h"

namespace gpushare::test {

using namespace std::chrono_literals;

inline constexpr Nanos kTurnGrace = 30ms;

class JobTurnTest : public ::testing::Test {
 protected:
  // Looks, then stops it or lets it run.
  void stop() {
    turn_.look(now_, {&look_, 1});
    turn_.stop(now_, kTurnGrace);
    carry_out();
  }
  void run() {
    turn_.look(now_, {&look_, 1});
    turn_.run(now_);
    carry_out();
  }
  void stop_for(Nanos time) {
    for (const Time end = now_ + time; now_ < end; now_ += 1ms) stop();
  }
  void launch() {
    ++look_.launches;
    look_.last_launch = now_;
  }
  void run_and_launch() {
    run();
    launch();
  }
  void come_to_the_boundary() { look_.at_boundary = now_; }
  ProcessHold hold() const { return turn_.holds().at(0); }

  Time now_{1000s};
  ProcessLook look_{.process = {100, 1},
                    .has_shim = true,
                    .has_boundary = true,
                    .begun = 50,
                    .launches = 1000,
                    .last_launch = now_};
  JobTurn turn_;

 private:
  void carry_out() { look_.is_frozen = hold().is_frozen; }
};

}  // namespace gpushare::test
