// SPDX-License-Identifier: Apache-2.0
// Programs that take turns at their iterations' boundaries: one makes so many iterations while the
// others wait at the first launch of their next one. The owner calls step() every kLook, so that a
// program is let in soon after the one before has stopped. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shmctl/shim/host.h"

namespace gpushare::test {

class Alternation {
 public:
  static constexpr Nanos kLook = std::chrono::microseconds(100);

  // `host` outlives it. `iterations`: how many a turn has.
  Alternation(ShimHost& host, uint64_t iterations) : host_(host), iterations_(iterations) {}

  void step(Time now);
  // One JSON object.
  std::string report() const;

 private:
  // A turn ends after so long in any case: its program does something else then, or has ended.
  static constexpr Nanos kLongest = std::chrono::seconds(2);

  struct Player {
    ProcessId process;
    ShimSlot* slot;
    PublishedIterations known;
    bool is_waiting;
  };

  std::vector<Player> players() const;
  void let_in(const Player& next, Time now);
  void note_gap(const PublishedIterations& known, uint64_t made);

  ShimHost& host_;
  const uint64_t iterations_;
  bool has_begun_ = false;
  ProcessId turn_{};  // the process whose turn it is
  uint64_t begun_at_turn_ = 0;
  uint64_t stood_ns_ = 0;    // when the program before began to wait; 0: it did not
  bool is_awaited_ = false;  // the first launch of this turn has not been seen yet
  Time let_in_{};
  uint64_t turns_ = 0, overrun_ = 0, wrong_length_ = 0, unseen_ = 0;
  std::vector<double> gaps_us_;
};

}  // namespace gpushare::test
