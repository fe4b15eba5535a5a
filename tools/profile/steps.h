// SPDX-License-Identifier: Apache-2.0
// ProfileSteps is the course of `gpushare profile`: the program runs on while it gets one number of
// groups of SMs after the other, and at each its iterations are measured. Pure: the caller brings
// the time and what the processes say, moves the program and waits.
//
// The first iterations do not count (compilers, caches, the recogniser's own learning). At each
// step measuring begins with the first iteration that ended after the program had moved
// (sched/slo/meter.h). The p99 is taken over what was seen between two looks, which is one
// iteration if iterations take longer than a look.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/slo/meter.h"
#include "tools/profile/sweep.h"

namespace gpushare {

class ProfileSteps {
 public:
  static constexpr uint64_t kWarmUp = 10;  // iterations that do not count
  static constexpr uint64_t kFewest = 5;   // that make a point

  struct Limits {
    uint64_t iterations = 50;                    // of one step
    Nanos longest = std::chrono::seconds(10);    // of a step: what it has by then makes the point
    Nanos patience = std::chrono::seconds(120);  // until the first iteration, and for each move
  };
  enum class State {
    kWarmingUp,
    kMeasuring,
    kDone,
    kSilent,  // no iterations came in time
    kStuck,   // the program did not move in time
  };

  // `groups` says on how many groups to measure, in this order; there is at least one.
  ProfileSteps(std::vector<uint32_t> groups, const Limits& limits, Time now);

  // Call it often, for as long as it returns kWarmingUp or kMeasuring. `is_there` says that
  // whatever the program launches now runs on groups().
  State look(Time now, bool is_there, std::span<const ProcessView> processes);

  uint32_t groups() const { return groups_[step_]; }  // that the program shall have
  size_t step() const { return step_; }
  size_t steps() const { return groups_.size(); }
  uint64_t iterations() const { return count_; }  // of this step so far
  // The points so far, ordered by groups. There is none where there were fewer than kFewest
  // iterations in time.
  const std::vector<SweepPoint>& points() const { return points_; }
  ShimSource source() const { return source_; }

 private:
  struct Seen {
    double us = 0;
    uint64_t iterations = 0;
  };

  State measure(Time now);
  void finish_step(Time now);

  const std::vector<uint32_t> groups_;
  const Limits limits_;
  SloMeter meter_;
  State state_ = State::kWarmingUp;
  size_t step_ = 0;
  Time step_began_;  // of measuring, once the program is there
  Time waits_since_;
  bool was_there_ = false;
  uint64_t count_ = 0;
  std::vector<Seen> seen_;
  std::vector<SweepPoint> points_;
  ShimSource source_ = ShimSource::kNone;
};

}  // namespace gpushare
