// SPDX-License-Identifier: Apache-2.0
// Which process has the background. Work of a lower class runs with a slice of 1 us, so that the
// hardware gives way to the foreground within 0.2 ms; but two such processes would only switch and
// make no progress (measured: 0.0 each), so one holds the background, and the others are frozen. A
// turn is `length` of GPU time, or 4 x `length` of time when the foreground leaves little. Next is
// the process that has got least per weight, so that the weights hold in the long run; a higher
// class goes first. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

class BackgroundTurns {
 public:
  struct Candidate {
    uint32_t process = 0;  // ProcessView::id
    Priority priority = Priority::kIdle;
    double weight = 1;
    bool wants_gpu = true;
    Nanos used{};  // since the last call
  };
  struct Turn {
    std::optional<uint32_t> holder;  // none only without candidates
    bool is_contended = false;       // another process waits: its end must be noticed
    Time ends{Time::max()};          // the earliest end; Time::max() unless contended
  };

  BackgroundTurns(size_t slots, Nanos length) : length_(length), account_(slots) {}

  // `candidates`: those that may run at all, ascending by process. Keeps the holder as long as it
  // can.
  Turn next(Time now, std::span<const Candidate> candidates);

 private:
  struct Account {
    double per_weight = 0;   // ns of GPU time per weight; only differences count
    uint64_t last_call = 0;  // when it last contended
  };

  void charge(std::span<const Candidate> candidates, Priority contending);
  const Candidate* least_served(std::span<const Candidate> candidates, Priority contending) const;

  Nanos length_;
  std::vector<Account> account_;  // by process
  uint64_t call_ = 0;
  double floor_ = 0;  // least per_weight among those that contend: where newcomers start
  std::optional<uint32_t> holder_;
  Nanos turn_used_{};
  Time turn_began_{};
};

}  // namespace gpushare
