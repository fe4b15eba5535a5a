// SPDX-License-Identifier: Apache-2.0
// Which launches the recogniser looks at: most are written down first and looked at together, and
// while it is asleep it looks at none.
#include <algorithm>

#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {
namespace {

constexpr uint32_t kFutile = 64;          // times kShareLaunches without a find: it falls asleep
constexpr uint32_t kSleep = 458'752;      // launches until it wakes by itself
constexpr uint32_t kLearnAwake = 32'768;  // launches for which it then looks again

}  // namespace

bool IterationRecogniser::launch_now(uint64_t handle, uint32_t blocks, uint32_t weight,
                                     uint64_t stream, Moment now) {
  if (__builtin_expect(is_asleep_, 0) && sleeps_on(handle)) return false;
  look_at_written();
  const bool begins = arrive(handle, blocks, weight, stream, now);
  make_room_to_write(streams_[latest_]);
  return begins;
}

// Returns false when it wakes. What was known of the streams is then forgotten, as it is about
// launches long past. A program that does nothing new is looked at for kLearnAwake launches.
bool IterationRecogniser::sleeps_on(uint64_t handle) {
  const bool is_new = loops_.is_new(function_number(handle));
  slept_ += kLaunchesPerLook;
  if (!is_new && slept_ < kSleep) return true;
  is_asleep_ = false;
  slept_ = 0;
  futile_ = is_new ? 0 : kFutile;
  learn_left_ = kLearnAwake;
  for (Stream& stream : streams_) stream = Stream{};
  running_ = 0;
  drained_ns_ = 0;
  ++breaks_;
  return false;
}

void IterationRecogniser::note_futility() {
  if (is_trusted_) {
    futile_ = 0;
  } else if (learn_left_ == 0 && ++futile_ >= kFutile) {
    is_asleep_ = true;
  }
}

// Says how many of the next launches can be written down: those that certainly begin nothing and
// need no time. In a stream that is not lost that is every launch without a mark; in one that is
// lost, every launch but the top of the loop, which stays the same until the next choice.
void IterationRecogniser::make_room_to_write(const Stream& stream) {
  room_ = 0;
  if (stream.marks != 0 || !stream.is_running || is_asleep_) return;
  written_stream_ = stream.handle;
  const bool is_lost_now = is_lost(stream);
  is_at_loop_ = is_lost_now && loops_.has_top();
  if (is_at_loop_) {
    top_step_ = loops_.top_step();
    written_before_[0] = stream.previous;
    written_before_[1] = stream.before_previous;
  }
  if (is_lost_now) {
    room_ = std::min(most_written_, loops_.launches_before_choice());
  } else if (!is_lost(stream, most_written_)) {
    room_ = most_written_;
  } else {
    while (room_ < most_written_ && !is_lost(stream, room_)) ++room_;
  }
}

void IterationRecogniser::look_at_written() {
  const uint32_t count = written_count_;
  room_ = written_count_ = 0;
  for (uint32_t i = 0; i < count && !is_asleep_; ++i)
    arrive(written_[i].function, written_[i].blocks, 1, written_stream_, Moment(uint64_t{0}));
}

}  // namespace gpushare::shim
