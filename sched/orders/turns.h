// SPDX-License-Identifier: Apache-2.0
// `turns`: equal service by weight, in turns (start-time fair queueing, by class). Every job has a
// virtual time, its service / weight, where having the turn counts as service: the others wait for
// it, whether it makes use of it or not (a program that is stopped in a wait does not); the one
// with the least of those that want the GPU runs for turn_ms or one iteration, whichever is longer.
// A job that comes, or wants the GPU again, begins at the least virtual time of those that want it,
// or where nobody does at the greatest, so that nobody saves up turns.
//
// For any two that want the GPU all the time, the service / weight that they have had differs by at
// most one turn and the longest iteration, divided by the smaller weight.
#pragma once

#include <array>
#include <vector>

#include "sched/orders/order.h"

namespace gpushare {

class TurnsPolicy final : public OrderPolicy {
 public:
  explicit TurnsPolicy(const PolicyOptions& options) : OrderPolicy(options) {}

 private:
  // A job as it was at the last call.
  struct Account {
    uint64_t job = 0;
    size_t priority = 0;  // its class, 0 to 2
    Time charged{};  // its service, or if it is more what it had when last seen and its turns since
    double virtual_time = 0;  // ns of service for each unit of weight
    bool was_ready = false;
  };

  void rank(std::span<Ranked> all, Time now) override;
  bool keeps(const Ranked& running, const Ranked& other, Time now) override;
  Time look_again(const JobView& running, Time now) override;
  Nanos lead(const JobView& running) const;

  std::vector<Account> accounts_, last_;  // ascending by job
  Time last_now_{};                       // of the last call
  std::array<double, 3> reached_{};       // by class: where those begin that come
};

}  // namespace gpushare
