// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration.h"

#include <algorithm>

namespace gpushare::shim {
namespace {

constexpr uint64_t kScalarBytes = 64;
constexpr uint32_t kFewestLaunches = 4;  // of what is worth the name
constexpr float kMarkedMemory = 256;     // evaluations are no reason to lose a training step
constexpr uint32_t kLearnNews = 16384;   // launches
constexpr uint32_t kFirstKinds = 8;      // new kinds that are no surprise
constexpr uint32_t kFutile = 64;         // times kShareLaunches
constexpr uint32_t kSleep = 458'752;     // launches
constexpr uint32_t kLearnAwake = 32'768;

}  // namespace

bool IterationRecogniser::launch_now(uint64_t handle, uint32_t blocks, uint32_t weight,
                                     uint64_t stream, Moment now) {
  if (__builtin_expect(is_asleep_, 0) && sleeps_on(handle)) return false;
  look_at_written();
  const bool begins = arrive(handle, blocks, weight, stream, now);
  make_room_to_write(streams_[latest_]);
  return begins;
}

// What was known of the streams is of launches long past. A program that is looked at again though
// it does nothing new gets one chance.
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

// For launches that neither begin anything nor ask for the time: those of a stream that is not lost
// do not, nor those of one that is, but the top of a loop, which only choices change.
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

bool IterationRecogniser::arrive(uint64_t handle, uint32_t blocks, uint32_t weight,
                                 uint64_t stream_handle, Moment now) {
  Stream& stream = stream_of(stream_handle);
  const uint32_t function = function_number(handle);
  const uint32_t transition = transition_number(stream.previous, function);
  ++launches_;
  start(stream, now);

  bool begins = false;
  if (stream.marks != 0) {
    begins = is_main(stream) &&
             edges_.arrive(stream.previous, function, stream.marks, stream.input_bytes,
                           stream.position - stream.unit_position);
    stream.unit_position = stream.position;
    stream.marks = 0;
    if (begins) note_marked_begin(stream);
  } else if (edges_.may_know(transition)) {
    edges_.pass(stream.previous, function);
  }
  const uint32_t step = transition_number(stream.before_previous, transition);
  const bool is_lost_now = is_lost(stream);
  // A new function: perhaps another program, whose beginning should not be missed.
  if (loops_.is_new(function)) {
    learn_left_ = kLearnNews;
  } else if (learn_left_ != 0) {
    --learn_left_;
  }
  if ((is_lost_now || !is_trusted_ || learn_left_ != 0) && is_main(stream)) {
    if (!loops_.is_resting(is_trusted_, learn_left_ != 0))
      loops_.learn(step, static_cast<uint32_t>(&stream - streams_), stream.position + 1, breaks_,
                   is_lost_now);
    if (!begins && is_lost_now && loops_.is_top(step)) begins = stream.has_looped = true;
  }
  if (begins) begin(stream, function, blocks, now.ns());

  stream.before_previous = stream.previous;
  stream.previous = function;
  stream.position += weight;
  stream.recent += weight;
  stream.last_used = launches_;
  stream.input_bytes = 0;
  IterationSketch& sketch = stream.sketch;
  sketch.launches += weight;
  sketch.width += bits_of(blocks);
  sketch.functions |= 1ULL << (function >> 26);
  sketch.has_graph = sketch.has_graph || weight != 1;
  if (--until_halved_ == 0) halve_shares();
  return begins;
}

void IterationRecogniser::copy(CopyWay way, uint64_t bytes, bool waits, uint64_t stream_handle,
                               Moment now) {
  look_at_written();
  Stream& stream = stream_of(stream_handle);
  stream.last_used = launches_ + 1;
  start(stream, now);
  if (way == CopyWay::kToGpu) {
    if (bytes < kScalarBytes) {
      stream.marks |= kMarkScalar;
    } else {
      stream.marks |= kMarkInput;
      stream.inputs += bytes;  // and what others do stays to be taken
      inputs_ += bytes;
    }
    add_input(stream, bytes);
  } else if (way == CopyWay::kFromGpu) {
    stream.marks |= kMarkOutput;
    ++breaks_;
  }
  if (waits) set_drained(stream, now.ns());
}

void IterationRecogniser::ordered(uint64_t stream_handle) {
  look_at_written();
  Stream& stream = stream_of(stream_handle);
  stream.last_used = launches_ + 1;
  if (stream.inputs == inputs_) return;
  stream.marks |= kMarkInput;
  add_input(stream, inputs_ - stream.inputs);
  stream.inputs = inputs_;
}

void IterationRecogniser::add_input(Stream& stream, uint64_t bytes) {
  const uint64_t sum = stream.input_bytes + bytes;
  stream.input_bytes = sum < ~0U ? static_cast<uint32_t>(sum) : ~0U;
}

void IterationRecogniser::waited(uint64_t stream_handle, uint64_t now) {
  look_at_written();
  ++breaks_;
  if (stream_handle != kAllStreams) {
    Stream& stream = stream_of(stream_handle);
    stream.last_used = launches_ + 1;
    stream.marks |= kMarkOutput;
    set_drained(stream, now);
    return;
  }
  for (Stream& stream : streams_) {
    if (stream.last_used == 0) continue;
    stream.marks |= kMarkOutput;
    set_drained(stream, now);
  }
}

IterationRecogniser::Stream& IterationRecogniser::find_stream(uint64_t handle) {
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < kStreams; ++i) {
    if (streams_[i].last_used != 0 && streams_[i].handle == handle) {
      latest_ = i;
      return streams_[i];
    }
    if (streams_[i].last_used < streams_[oldest].last_used) oldest = i;
  }
  Stream& stream = streams_[oldest];
  if (stream.is_running) --running_;
  stream = Stream{};
  stream.handle = handle;
  stream.inputs = inputs_;
  stream.last_used = launches_ + 1;
  latest_ = oldest;
  return stream;
}

void IterationRecogniser::set_running(Stream& stream, uint64_t now) {
  stream.is_running = true;
  if (running_++ == 0 && drained_ns_ != 0 && now > drained_ns_) idle_ns_ += now - drained_ns_;
}

void IterationRecogniser::set_drained(Stream& stream, uint64_t now) {
  if (!stream.is_running) return;
  stream.is_running = false;
  if (--running_ == 0) drained_ns_ = now;
}

// A stream is lost when it launches on and on without an iteration that begins at a mark.
void IterationRecogniser::note_marked_begin(Stream& stream) {
  const auto launches = static_cast<float>(stream.position - stream.marked_begin);
  stream.marked_begin = stream.position;
  const float before = stream.last_marked;
  const bool is_alike = 4 * launches <= 5 * before && 5 * launches >= 4 * before;
  const bool is_two_loops = stream.has_looped && !is_alike;
  stream.last_marked = launches;
  stream.has_looped = false;
  if (is_two_loops) return;
  if (launches > stream.marked_launches) {
    stream.marked_launches = launches;
  } else {
    stream.marked_launches += (launches - stream.marked_launches) / kMarkedMemory;
  }
}

void IterationRecogniser::halve_shares() {
  note_futility();
  until_halved_ = kShareLaunches;
  busiest_ = 0;
  for (Stream& stream : streams_) {
    if (stream.last_used == 0) continue;
    if (stream.recent > busiest_) busiest_ = stream.recent;
    stream.recent /= 2;
    stream.is_young = false;
  }
  busiest_ /= 2;
}

void IterationRecogniser::begin(Stream& stream, uint32_t function, uint32_t blocks, uint64_t now) {
  forget_outcomes_of_old_rules(stream.has_looped);
  int before = -1;
  const uint64_t period = now > stream.began_ns ? now - stream.began_ns : 0;
  const uint64_t idle = idle_ns_ - stream.idle_at_begin;
  const uint64_t busy = period > idle ? period - idle : 0;
  if (stream.is_counted) {
    ++ended_;
    busy_sum_ns_ += busy;
    period_sum_ns_ += period;
  }
  if (stream.has_begun && stream.sketch.launches >= kFewestLaunches) {
    const IterationKinds::Outcome outcome = kinds_.end(stream.sketch, busy);
    if (outcome != IterationKinds::Outcome::kNew || kinds_.made() > kFirstKinds) {
      const uint32_t is_expected = outcome == IterationKinds::Outcome::kExpected ? 1 : 0;
      set_outcomes(outcomes_ << 1 | is_expected, outcome_count_ < 32 ? outcome_count_ + 1 : 32);
    }
    if (outcome == IterationKinds::Outcome::kExpected) times_.add(period, busy);
    before = static_cast<int>(stream.sketch.kind);
  }
  const uint64_t waited_ns =
      drained_ns_ != 0 && now > drained_ns_ && running_ == 1 ? now - drained_ns_ : 0;
  stream.sketch = IterationSketch{};
  stream.sketch.kind = kinds_.begin(function, blocks, before);
  stream.sketch.input_bytes = stream.input_bytes;
  stream.sketch.waited_ns = waited_ns;
  stream.began_ns = now;
  stream.idle_at_begin = idle_ns_;
  stream.has_begun = true;
  phase_ = kinds_.phase(stream.sketch.kind);
  stream.is_counted = is_trusted();
  if (is_trusted()) ++count_;
}

void IterationRecogniser::held(uint64_t stream_handle, uint64_t until_ns) {
  look_at_written();
  Stream& stream = stream_of(stream_handle);
  stream.began_ns = until_ns;
  stream.idle_at_begin = idle_ns_;
}

void IterationRecogniser::forget_outcomes_of_old_rules(bool is_loop) {
  uint32_t& known = is_loop ? loop_rules_ : edge_rules_;
  const uint32_t changes = is_loop ? loops_.changes() : edges_.changes();
  if (known == changes) return;
  known = changes;
  set_outcomes(0, 0);
}

void IterationRecogniser::set_outcomes(uint32_t outcomes, uint32_t count) {
  outcomes_ = outcomes;
  outcome_count_ = count;
  is_trusted_ = confidence() >= kTrusted;
}

float IterationRecogniser::confidence() const {
  return static_cast<float>(__builtin_popcount(outcomes_)) / static_cast<float>(outcome_count_ + 1);
}

IterationReport IterationRecogniser::report() const {
  IterationReport report;
  report.count = count_;
  report.ended = ended_;
  report.busy_sum_ns = busy_sum_ns_;
  report.period_sum_ns = period_sum_ns_;
  report.confidence = confidence();
  report.mean_ns = times_.mean_ns();
  report.p99_ns = times_.p99_ns();
  report.busy_ns = times_.busy_ns();
  report.launches = kinds_.launches(streams_[latest_].sketch.kind);
  report.phase = phase_;
  return report;
}

}  // namespace gpushare::shim
