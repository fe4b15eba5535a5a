// SPDX-License-Identifier: Apache-2.0
#include "sched/module/waits.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gpushare {
namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

// Those of one tenant that want one GPU.
struct OnGpu {
  uint32_t wanting = 0;
  bool is_at_once = false;
  Nanos used{};                // by all of them
  Nanos least = Nanos::max();  // by the one that had least
};

double in_seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Waited waited(std::span<const Turn> turns, Nanos passed) {
  std::map<uint32_t, OnGpu> gpus;
  for (const Turn& turn : turns) {
    if (!turn.wants_gpu) continue;
    OnGpu& gpu = gpus[turn.gpu];
    ++gpu.wanting;
    gpu.is_at_once = turn.is_at_once;
    gpu.used += turn.used;
    gpu.least = std::min(gpu.least, turn.used);
  }
  if (gpus.empty()) return {};
  Waited all{.some = {}, .full = passed};
  for (const auto& [index, gpu] : gpus) {
    const Nanos full = passed - std::min(gpu.used, passed);
    const bool take_turns = gpu.wanting > 1 && !gpu.is_at_once;
    const Nanos some = take_turns ? passed : passed - std::min(gpu.least, passed);
    all.some = std::max(all.some, some);
    all.full = std::min(all.full, full);
  }
  all.full = std::min(all.full, all.some);
  return all;
}

void Pressure::add(Nanos waited, Nanos passed) {
  waited = std::clamp(waited, Nanos{}, passed);
  total_ += waited;
  waited_ += waited;
  passed_ += passed;
  if (passed_ < kStep) return;
  const double part = in_seconds(waited_) / in_seconds(passed_);
  constexpr seconds kWindows[] = {seconds(10), seconds(60), seconds(300)};
  for (int i = 0; i < 3; ++i) {
    const double kept = std::exp(-in_seconds(passed_) / in_seconds(kWindows[i]));
    averages_[i] = averages_[i] * kept + part * (1 - kept);
  }
  waited_ = passed_ = {};
}

void CapPeriods::add(Time now, Nanos passed, Nanos period, bool has_work, Nanos throttled) {
  if (period <= Nanos{}) {
    had_work_ = false;
    throttled_ = {};
    return;
  }
  had_work_ |= has_work;
  throttled_ += throttled;
  const auto number = [&](Time at) { return at.time_since_epoch() / period; };
  const int64_t ended = number(now) - number(now - passed);
  if (ended <= 0) return;
  if (had_work_) periods_ += static_cast<uint64_t>(ended);
  if (throttled_ > Nanos{}) {
    const int64_t touched = (throttled_ + period - Nanos(1)) / period;
    throttled_periods_ += static_cast<uint64_t>(std::min(touched, ended));
    if (!had_work_) periods_ += static_cast<uint64_t>(std::min(touched, ended));
  }
  had_work_ = false;
  throttled_ = {};
}

}  // namespace gpushare
