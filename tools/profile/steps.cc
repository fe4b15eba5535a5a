// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/steps.h"

#include <algorithm>
#include <cassert>

namespace gpushare {

ProfileSteps::ProfileSteps(std::vector<uint32_t> groups, const Limits& limits, Time now)
    : groups_(std::move(groups)), limits_(limits), step_began_(now), waits_since_(now) {
  assert(!groups_.empty());
}

ProfileSteps::State ProfileSteps::look(Time now, bool is_there,
                                       std::span<const ProcessView> processes) {
  if (state_ != State::kWarmingUp && state_ != State::kMeasuring) return state_;
  // Not there yet: on no number of groups that is known, so nothing counts.
  std::vector<const ProcessView*> seen;
  for (const ProcessView& process : processes) seen.push_back(&process);
  meter_.look(now, is_there ? groups() : 0, /*sharers=*/1, seen);
  if (is_there && !was_there_) step_began_ = waits_since_ = now;
  was_there_ = is_there;
  if (is_there) return state_ = measure(now);
  if (now - waits_since_ < limits_.patience) return state_;
  return state_ = state_ == State::kWarmingUp ? State::kSilent : State::kStuck;
}

ProfileSteps::State ProfileSteps::measure(Time now) {
  const SloMeasure measure = meter_.take(now, 1);
  if (measure.iterations > 0) {
    source_ = measure.source;
    count_ += measure.iterations;
    waits_since_ = now;
    if (state_ == State::kMeasuring) seen_.push_back({measure.latency * 1e6, measure.iterations});
  }
  if (state_ == State::kWarmingUp) {
    if (count_ < kWarmUp)
      return now - waits_since_ < limits_.patience ? State::kWarmingUp : State::kSilent;
    count_ = 0;
    step_began_ = now;
    return State::kMeasuring;
  }
  if (count_ < limits_.iterations && now - step_began_ < limits_.longest) return State::kMeasuring;
  finish_step(now);
  if (step_ + 1 == groups_.size()) return points_.empty() ? State::kSilent : State::kDone;
  ++step_;
  return State::kMeasuring;
}

void ProfileSteps::finish_step(Time now) {
  if (count_ >= kFewest) {
    double sum = 0;
    for (const Seen& seen : seen_) sum += seen.us * static_cast<double>(seen.iterations);
    const double mean = sum / static_cast<double>(count_);
    std::ranges::sort(seen_, {}, &Seen::us);
    uint64_t above = count_ / 100;  // iterations that may lie above the p99
    auto slowest = seen_.end() - 1;
    while (slowest != seen_.begin() && slowest->iterations <= above) {
      above -= slowest->iterations;
      --slowest;
    }
    const SweepPoint point{.groups = groups(),
                           .iterations = count_,
                           .mean_us = mean,
                           .p99_us = std::max(slowest->us, mean)};
    points_.insert(std::ranges::upper_bound(points_, point.groups, {}, &SweepPoint::groups), point);
  }
  seen_.clear();
  count_ = 0;
  was_there_ = false;
  waits_since_ = now;
}

}  // namespace gpushare
