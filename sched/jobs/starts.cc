// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/starts.h"

#include <algorithm>

namespace gpushare {

void Starts::begin() {
  std::swap(before_, ones_);
  ones_.clear();
  is_any_ = is_any_watched_ = false;
}

bool Starts::was_over(const ProcessId& process, uint32_t gpu) const {
  const auto one = before_.find({process, gpu});
  return one != before_.end() && one->second.is_over;
}

bool Starts::see(const Seen& seen, Time now) {
  const Key key{seen.process, seen.gpu};
  const auto before = before_.find(key);
  const bool is_new = before == before_.end();
  One& one = ones_[key] = is_new ? One{.is_over = !seen.can_start} : before->second;
  if (is_new || seen.used > Nanos{}) one.used_last = now;
  const bool was_starting = !one.is_over;
  one.used += seen.used;
  one.is_over = one.is_over || !seen.can_start || one.used >= kLongest;
  one.worked = was_starting && one.is_over ? seen.used : Nanos{};
  if (!was_starting) return false;
  if (seen.passes) charge(seen.gpu, seen.used, now);
  if (one.is_over) return false;
  const bool may_pass = left(seen.gpu, now) > Nanos{};
  if (seen.is_frozen) return may_pass;
  is_any_ = true;
  is_any_watched_ |= !may_pass || now - one.used_last < kWatch;
  return may_pass;
}

Nanos Starts::left(uint32_t gpu, Time now) {
  constexpr Nanos kEvery = std::chrono::seconds(1);
  left_[gpu].configure(std::chrono::duration_cast<Nanos>(kEvery * kPart), kEvery, kSaved, now);
  return left_[gpu].refill(now);
}

void Starts::charge(uint32_t gpu, Nanos used, Time now) {
  left_[gpu].charge(std::clamp(left(gpu, now) + kSaved, Nanos{}, used));
}

bool Starts::is_starting(const ProcessId& process, uint32_t gpu) const {
  const auto one = ones_.find({process, gpu});
  return one != ones_.end() && !one->second.is_over;
}

Nanos Starts::worked(const ProcessId& process) const {
  Nanos worked{};
  for (auto one = ones_.lower_bound({process, 0});
       one != ones_.end() && one->first.first == process; ++one)
    worked += one->second.worked;
  return worked;
}

Time Starts::next_step(Time now) const {
  return !is_any_ ? Time::max() : now + (is_any_watched_ ? kStep : kIdleStep);
}

}  // namespace gpushare
