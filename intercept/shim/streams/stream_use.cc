// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/streams/stream_use.h"

#include "intercept/shim/link/backoff.h"

namespace gpushare::shim {

void StreamUse::take(Flavor flavor, Use use) {
  Streams* all = Streams::get();
  if (__builtin_expect(all == nullptr, 1)) return;
  stream_ = all->find(handle_, flavor);
  is_launch_ = use == Use::kLaunch;
  use_ = use;
  if (stream_ == nullptr) {
    if (is_launch_) all->count_unknown_launch();
    return;
  }
  if (__builtin_expect(Inside::is_any(), 0)) {
    physical_ = stream_->physical();
    stream_ = nullptr;
    return;
  }
  const Inside inside;
  if (all->is_any_capturing()) all->end_left_captures();
  if (!leaves_no_work(use) && !stream_->is_used.load(std::memory_order_relaxed))
    all->note_used(*stream_);
  if (is_launch_) all->before_launch(*stream_);
  put_in_order(use);
}

void StreamUse::put_in_order(Use use) {
  Streams& all = *Streams::get();
  // Until a move has ended, which takes a few microseconds.
  for (Backoff wait;
       (stream_->users.fetch_add(1, std::memory_order_acquire) & Stream::kMoving) != 0;) {
    stream_->users.fetch_sub(1, std::memory_order_relaxed);
    wait.pause();
  }
  is_held_ = true;
  has_passed_capture_ = false;
  has_work_before_ = !all.order_with_legacy(*stream_, use, has_passed_capture_);
  const bool is_home = stream_->place.load(std::memory_order_acquire) == 0;
  physical_ = is_home ? handle_ : stream_->physical();
  is_to_be_marked_ = stream_->is_own_at_home();
  if (!leaves_no_work(use)) return;
  stream_->users.fetch_sub(1, std::memory_order_release);
  is_held_ = false;
}

// Where the capture has ended meanwhile, the driver would not refuse the call: it comes behind what
// was left out.
CUresult StreamUse::find_refusal(bool ends_captures) {
  Streams& all = *Streams::get();
  while (true) {
    const CUresult refusal = all.refusal_of(*stream_, ends_captures);
    if (refusal != CUDA_SUCCESS || !has_passed_capture_) return refusal;
    const Inside inside;
    if (is_held_) stream_->users.fetch_sub(1, std::memory_order_release);
    put_in_order(use_);
  }
}

}  // namespace gpushare::shim
