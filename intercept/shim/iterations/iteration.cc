// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {
namespace {

constexpr uint64_t kScalarBytes = 64;   // a smaller copy is a scalar
constexpr uint32_t kLearnNews = 16384;  // launches to learn after a new function
// Iterations that the length of marked ones remembers: a stream must not count as lost because an
// evaluation has many short ones.
constexpr float kMarkedMemory = 256;

}  // namespace

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
  // A new function may be the beginning of another phase of the program, which should not be
  // missed.
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
      stream.inputs += bytes;  // what other streams copied in still has to be taken
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

// Keeps how long iterations that begin at marks are; a stream is lost when it launches much longer
// without one. Does not count an iteration within which loops without marks began, unless it is as
// long as the one before it.
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

}  // namespace gpushare::shim
