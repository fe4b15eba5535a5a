// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/srtf.h"

#include <algorithm>

#include "sched/orders/times.h"

namespace gpushare {
namespace {
constexpr Nanos kSoonest = std::chrono::microseconds(1);

// What it has had of its length.
Nanos worked(const JobView& job) { return std::max(job.service - job.start, Nanos{}); }
}  // namespace

const LengthMix& SrtfPolicy::mix() const {
  static const LengthMix kNothingLearnt;
  return lengths_ == nullptr ? kNothingLearnt : lengths_->mix();
}

void SrtfPolicy::rank(std::span<Ranked> all, Time) {
  for (Ranked& one : all)
    one.key = one.job->left ? std::max(static_cast<double>(one.job->left->count()), 0.0)
                            : mix().index(worked(*one.job));
}

bool SrtfPolicy::keeps(const Ranked& running, const Ranked& other, Time) {
  const auto least =
      static_cast<double>(std::clamp(running.job->period, kLeastGain, kLongestIteration).count());
  return other.key + least >= running.key;
}

// The key of the one that runs falls, and of an unknown one jumps where jobs like it often end.
Time SrtfPolicy::look_again(const JobView& running, Time now) {
  if (running.left) return Time::max();
  const Nanos jump = mix().next_jump(worked(running));
  if (jump == Nanos::max()) return Time::max();
  return later(now, std::max(jump - worked(running), kSoonest));
}

}  // namespace gpushare
