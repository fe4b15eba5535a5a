// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/streams/drain.h"

#include <algorithm>

namespace gpushare::shim {

bool Drain::may_hold(uint64_t now, uint32_t left, uint64_t interval_ns) {
  if (begin_ns_ == 0 || now - asked_ns_ > kForgottenNs) {
    begin_ns_ = progress_ns_ = now;
    longest_step_ns_ = 0;
    least_left_ = left;
  }
  asked_ns_ = now;
  if (left < least_left_) {
    least_left_ = left;
    longest_step_ns_ = std::max(longest_step_ns_, now - progress_ns_);
    progress_ns_ = now;
  }
  const uint64_t patience = std::clamp(kIntervals * std::max(interval_ns, longest_step_ns_),
                                       kLeastPatienceNs, kMostPatienceNs);
  if (now - progress_ns_ < patience) return true;
  pause(now);
  return false;
}

void Drain::pause(uint64_t now) {
  pause_ns_ = std::clamp(2 * pause_ns_, kFirstPauseNs, kLongestPauseNs);
  pause_until_ns_ = now + pause_ns_;
  begin_ns_ = 0;
}

bool Milestones::record(const Driver& driver, CUstream stream, uint64_t now) {
  const TryLocked locked(lock_);
  if (!locked.is_held()) return true;
  spacing_ns_ = std::clamp(spacing_ns_, kLeastSpacingNs, kMostSpacingNs);
  if (now - last_ns_ < spacing_ns_) return false;
  const auto is_left = [&](unsigned i) {
    return is_on_its_way_[i] && driver.cuEventQuery(events_[i]) == CUDA_ERROR_NOT_READY;
  };
  // The next entry is the oldest, the one half round is of middle age.
  if (is_left(next_)) {
    spacing_ns_ = 2 * spacing_ns_;
    return true;
  }
  if (!is_left((next_ + kMost / 2) % kMost)) spacing_ns_ = spacing_ns_ / 2;
  CUevent& event = events_[next_];
  if (event == nullptr && driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  const bool was_never_empty = is_left((next_ + kMost - 1) % kMost);
  intervals_[interval_count_++ % kIntervals] = was_never_empty ? now - last_ns_ : 0;
  interval_ns_.store(*std::max_element(intervals_, intervals_ + kIntervals),
                     std::memory_order_relaxed);
  is_on_its_way_[next_] = driver.cuEventRecord(event, stream) == CUDA_SUCCESS;
  next_ = (next_ + 1) % kMost;
  last_ns_ = now;
  return true;
}

uint32_t Milestones::count_left(const Driver& driver) {
  const Locked locked(lock_);
  uint32_t left = 0;
  for (unsigned i = 0; i < kMost; ++i) {
    if (!is_on_its_way_[i]) continue;
    is_on_its_way_[i] = driver.cuEventQuery(events_[i]) == CUDA_ERROR_NOT_READY;
    left += is_on_its_way_[i] ? 1 : 0;
  }
  return left;
}

void Milestones::drop(const Driver& driver) {
  const Locked locked(lock_);
  for (unsigned i = 0; i < kMost; ++i) {
    if (events_[i] != nullptr) driver.cuEventDestroy_v2(events_[i]);
    events_[i] = nullptr;
    is_on_its_way_[i] = false;
    intervals_[i % kIntervals] = 0;
  }
}

}  // namespace gpushare::shim
