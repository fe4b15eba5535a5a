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

// They pass in the order in which they were recorded, or nearly so.
void Milestones::look_what_passed(const Driver& driver, uint64_t now) {
  looked_ns_ = now;
  for (; oldest_ != next_; oldest_ = (oldest_ + 1) % kMost) {
    if (!is_on_its_way_[oldest_]) continue;
    if (driver.cuEventQuery(events_[oldest_]) == CUDA_ERROR_NOT_READY) {
      looked_in_vain_ns_ = now;
      return;
    }
    is_on_its_way_[oldest_] = false;
    if (oldest_ == watched_) set_watching(false);
    if (tells_drain_[oldest_]) learn(now - recorded_ns_[oldest_], places_[oldest_]);
  }
  set_watching(false);
}

void Milestones::look_after_wait(const Driver& driver, uint64_t now) {
  const TryLocked locked(lock_);
  if (!locked.is_held() || !is_watching()) return;
  now = std::max({now, last_ns_, looked_ns_});
  if (now - looked_in_vain_ns_ >= kLookEveryNs) look_what_passed(driver, now);
}

void Milestones::learn(uint64_t drain_ns, uint64_t place) {
  const auto known = static_cast<int64_t>(drain_ns_.load(std::memory_order_relaxed));
  const bool is_first = known == 0 || drain_place_.load(std::memory_order_relaxed) != place;
  const auto seen = static_cast<int64_t>(drain_ns);
  const int64_t next = is_first ? seen : known + (seen - known) / kDrainParts;
  drain_ns_.store(static_cast<uint64_t>(next), std::memory_order_relaxed);
  drain_place_.store(place, std::memory_order_relaxed);
}

bool Milestones::record(const Driver& driver, CUstream stream, uint64_t now,
                        std::optional<uint64_t> place) {
  const TryLocked locked(lock_);
  if (!locked.is_held()) return true;
  now = std::max({now, last_ns_, looked_ns_});  // another thread that asked later may be before us
  spacing_ns_ = std::clamp(spacing_ns_, kLeastSpacingNs, kMostSpacingNs);
  const bool is_time = now - last_ns_ >= spacing_ns_;
  if (is_time || (is_watching() && now - looked_ns_ >= kLookEveryNs)) look_what_passed(driver, now);
  if (!is_time) {
    if (!is_watching()) std::fill_n(tells_drain_, kMost, false);  // launches look no more
    return is_watching();
  }
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
  const bool is_empty = place && driver.cuStreamQuery(stream) == CUDA_SUCCESS;
  if (is_empty) learn(1, *place);
  const bool was_never_empty = is_left((next_ + kMost - 1) % kMost);
  intervals_[interval_count_++ % kIntervals] = was_never_empty ? now - last_ns_ : 0;
  interval_ns_.store(*std::max_element(intervals_, intervals_ + kIntervals),
                     std::memory_order_relaxed);
  is_on_its_way_[next_] = driver.cuEventRecord(event, stream) == CUDA_SUCCESS;
  recorded_ns_[next_] = now;
  tells_drain_[next_] = place && !is_empty;
  places_[next_] = place.value_or(0);
  if (tells_drain_[next_] && !is_watching() && now - watched_since_ns_ >= kWatchEveryNs) {
    set_watching(true);
    watched_ = next_;
    watched_since_ns_ = now;
  }
  next_ = (next_ + 1) % kMost;
  if (oldest_ == next_) {  // it is used again before it was seen to pass
    if (oldest_ == watched_) set_watching(false);
    oldest_ = (oldest_ + 1) % kMost;
  }
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
  drain_ns_.store(0, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
