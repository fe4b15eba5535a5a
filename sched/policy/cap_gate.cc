// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/cap_gate.h"

#include <algorithm>
#include <cmath>

namespace gpushare {
namespace {
constexpr Nanos kShortestRun = std::chrono::milliseconds(2);
constexpr Nanos kRounding =
    std::chrono::microseconds(1);  // a bucket that counts a little differently is still full enough

Nanos times(Nanos duration, double factor) {
  return Nanos(static_cast<Nanos::rep>(std::ceil(static_cast<double>(duration.count()) * factor)));
}
}  // namespace

Nanos resume_level(const CapView& cap) {
  const Nanos quota = times(cap.period, cap.fraction);
  const Nanos two_cycles = times(quota, (1 - cap.fraction) / 2);
  return std::min(std::max(two_cycles, kShortestRun), cap.burst);
}

Nanos until_resume(const CapView& cap) {
  return times(std::max(resume_level(cap) - cap.tokens, Nanos::zero()), 1 / cap.fraction);
}

Nanos until_empty(const CapView& cap) {
  if (cap.fraction >= 1) return Nanos::max();
  return times(std::max(cap.tokens, Nanos::zero()), 1 / (1 - cap.fraction));
}

const CapView& binding(const CapView& one, const CapView& other) {
  const bool is_out = one.tokens < Nanos::zero();
  if (is_out != (other.tokens < Nanos::zero())) return is_out ? one : other;
  if (is_out) return until_resume(one) >= until_resume(other) ? one : other;
  return until_empty(one) <= until_empty(other) ? one : other;
}

bool is_shut(const CapView& cap, bool was_shut) {
  if (was_shut) return cap.tokens + kRounding < resume_level(cap);
  return cap.tokens < Nanos::zero();
}

bool CapGate::update(uint32_t slot, const std::optional<CapView>& cap) {
  is_shut_[slot] = cap && gpushare::is_shut(*cap, is_shut_[slot]);
  return is_shut_[slot];
}

}  // namespace gpushare
