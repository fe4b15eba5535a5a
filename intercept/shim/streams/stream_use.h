// SPDX-License-Identifier: Apache-2.0
// A stream while one call of the program uses it: made by the wrapper before the driver's call,
// ended after it, on the same thread. Where the stream is settled (Streams::is_settled()), a launch
// or a wait calls no function for it; all of that is inline.
#pragma once

#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

// False: no stream of this process ever moves.
[[gnu::always_inline]] inline bool may_move() {
  return (this_process().features.load(std::memory_order_relaxed) & kShimPartitions) != 0;
}

class StreamUse {
 public:
  [[gnu::always_inline]] StreamUse(CUstream handle, Flavor flavor, Use use)
      : handle_(handle), physical_(handle) {
    if (use == Use::kOperation || __builtin_expect(!take_settled(flavor, use), 0))
      take(flavor, use);
  }
  [[gnu::always_inline]] ~StreamUse() {
    if (!is_held_) return;
    if (__builtin_expect(is_to_be_marked_, 0)) Streams::get()->mark(*stream_);
    Streams::end_use(*stream_);
  }
  StreamUse(const StreamUse&) = delete;
  StreamUse& operator=(const StreamUse&) = delete;

  // The stream to give to the driver.
  CUstream physical() const { return physical_; }
  // Other than CUDA_SUCCESS: what the wrapper returns instead of making the call.
  CUresult refusal(bool ends_captures = true) {
    return stream_ == nullptr || is_settled_ ? CUDA_SUCCESS : find_refusal(ends_captures);
  }
  // What a query answers: the driver's result, unless something runs that the driver does not know
  // to come before.
  CUresult answer(CUresult result) const {
    return result == CUDA_SUCCESS && has_work_before_ ? CUDA_ERROR_NOT_READY : result;
  }
  CUstream handle() const { return handle_; }
  Stream* stream() const { return stream_; }  // null: one that the shim leaves alone
  bool is_away() const { return is_held_ && physical_ != handle_; }

  // Runs `call` with the stream's home, in order with the work at its place. `refusal`: what the
  // driver has answered to it there, which the program gets if there can be no such order. In a
  // capture home joins that; it cannot where the refusal has made the capture invalid.
  template <class Call>
  CUresult at_home(const Call& call, CUresult refusal = CUDA_SUCCESS) {
    if (!is_away()) return call(handle_);
    Streams& all = *Streams::get();
    if (!all.home_waits(*stream_) && refusal != CUDA_SUCCESS) return refusal;
    if (is_launch_) all.count_at_home(*stream_->device);
    const CUresult result = call(handle_);
    all.waits_for_home(*stream_);
    return result;
  }

 private:
  // A wait does not become a user: it concerns the work that is in line now, and must not keep
  // another thread from moving the stream.
  [[gnu::always_inline]] bool take_settled(Flavor flavor, Use use) {
    Streams* const all = this_process().streams.load(std::memory_order_acquire);
    Stream* const stream = all == nullptr ? nullptr : all->find_at_once(handle_, flavor);
    if (stream == nullptr || !all->is_settled(*stream, use)) return false;
    // Asked again once it cannot move any more: it may have moved in between, as it was empty, and
    // has to wait for the legacy stream then.
    if (!leaves_no_work(use) &&
        __builtin_expect(
            (stream->users.fetch_add(1, std::memory_order_acquire) & Stream::kMoving) != 0 ||
                !Streams::has_waited(*stream),
            0)) {
      stream->users.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    if (stream->place.load(std::memory_order_acquire) != 0) {
      CUstream const there = stream->physical();
      // The place that a wait read is gone meanwhile, or the legacy stream has just left home.
      if (there == nullptr || stream == &stream->device->legacy) {
        if (!leaves_no_work(use)) stream->users.fetch_sub(1, std::memory_order_relaxed);
        return false;
      }
      physical_ = there;
    }
    is_held_ = !leaves_no_work(use);
    is_launch_ = use == Use::kLaunch;
    stream_ = stream;
    is_settled_ = true;
    return true;
  }
  void take(Flavor flavor, Use use);
  void put_in_order(Use use);
  CUresult find_refusal(bool ends_captures);

  const CUstream handle_;
  CUstream physical_;
  Stream* stream_ = nullptr;
  bool is_held_ = false, is_settled_ = false, is_to_be_marked_ = false, is_launch_ = false;
  bool has_work_before_ = false;
  bool has_passed_capture_ = false;  // the legacy stream: work in one that captures was left out
  Use use_{};                        // of one that is not settled
};

}  // namespace gpushare::shim
