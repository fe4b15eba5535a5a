// SPDX-License-Identifier: Apache-2.0
// Iterations: recognises, from nothing but the launches, copies and waits of a process, where an
// iteration of its main loop begins: a training step, a decoding step, a request. Pure: no clock of
// its own, no driver, no allocation, no failure; the caller gives the time and serialises the
// calls. About 93 KiB, fixed (asserted below); every call is O(1): 13 to 27 ns
// (bench/intercept/shim), or that for each of up to 32 launches that were written down.
//
// How. Periods of a raw launch sequence are the wrong thing to look for: layers repeat inside an
// iteration, kernels vary with the data, evaluation follows other rules. What every loop has is a
// way back to its top, so the recogniser looks for that one transition (last kernel of an iteration
// -> first kernel of the next):
//   1. Host loops show at marks: the program handed in data (on that stream, or on one that it then
//      made this stream wait for) or waited for a result since the last launch on that stream.
//      Transitions at marks cut the launches into units; those that only divide an iteration (a
//      wait for an overflow flag, a micro-batch before the optimizer step, a scalar that is copied
//      in) are told from those that begin one: iteration_edges.h.
//   2. A loop without marks (data that stays on the GPU, a loader with its own stream) shows as
//      the transitions with the longest regular distance; of those the one that leads from what was
//      first seen last to what was first seen first: iteration_loops.h.
//
// A launch that begins nothing, as most can be told at once, is only written down. Such launches
// are looked at together, before whatever comes next: each alone would find the first caches full
// of the driver's launch, and cost 100 ns instead of 20.
//
// Confidence is not how it was found but how it has fared: the part of the last 32 iterations that
// were like earlier ones of their kind, in launches and functions: iteration_kinds.h. Salus
// (MLSys'20) asks the framework for its iteration markers; nothing here needs one.
//
// A program in which nothing is found in 65,536 launches is not worth what looking at it costs: the
// recogniser falls asleep (is_asleep()), and need then be told of one launch in kLaunchesPerLook. A
// function that it has not seen wakes it, and else 458,752 launches do, for 32,768.
//
// Known to go wrong: extra kernels of >= 1 % of an iteration on every n-th (n <= 64) make n
// iterations one, as gradient accumulation looks the same; launches before the first mark of an
// iteration (a memset that clears gradients) count to the one before; where a loop without marks
// begins is a guess that fails (the period does not) when its first iteration was not seen whole.
// Needs about ten iterations to trust itself.
#pragma once

#include <cstdint>

#include "intercept/shim/iterations/iteration_edges.h"
#include "intercept/shim/iterations/iteration_hash.h"
#include "intercept/shim/iterations/iteration_kinds.h"
#include "intercept/shim/iterations/iteration_loops.h"
#include "intercept/shim/iterations/iteration_times.h"

namespace gpushare::shim {

enum class CopyWay : uint8_t { kToGpu, kFromGpu, kOnGpu };

// A moment; from a clock only if somebody asks, because reading one costs as much as all the rest.
class Moment {
 public:
  using Clock = uint64_t (*)();

  Moment(uint64_t ns) : ns_(ns) {}                // NOLINT(google-explicit-constructor)
  Moment(Clock clock) : ns_(0), clock_(clock) {}  // NOLINT(google-explicit-constructor)
  uint64_t ns() {
    if (clock_ != nullptr) {
      ns_ = clock_();
      clock_ = nullptr;
    }
    return ns_;
  }

 private:
  uint64_t ns_;
  Clock clock_ = nullptr;
};

struct IterationReport {
  uint64_t count = 0;    // iterations begun while confidence was at least kTrusted
  uint64_t ended = 0;    // of those: another one began on their stream
  float confidence = 0;  // 0..1; below kTrusted nothing else here is worth reading
  uint64_t mean_ns = 0;  // from begin to begin on a stream, over about the last 64; 0 unknown
  uint64_t p99_ns = 0;   // over about the last 1,000, to 1/8; 0 unknown
  uint64_t busy_ns = 0;  // mean; less the time in which the GPU was known to have nothing to do
  uint64_t busy_sum_ns = 0, period_sum_ns = 0;  // over all that ended
  float launches = 0;                           // mean
  Phase phase = Phase::kUnknown;                // of the iteration that began last
};

class IterationRecogniser {
 public:
  static constexpr float kTrusted = 0.75F;
  static constexpr uint32_t kMostWritten = 32;
  static constexpr uint32_t kLaunchesPerLook = 64;
  static constexpr uint64_t kAllStreams = ~0ULL;

  // `most_written`: launches that nobody has looked at, up to kMostWritten; changes no answer.
  explicit IterationRecogniser(uint32_t most_written = kMostWritten)
      : most_written_(most_written) {}

  // Of launches into a graph that is being captured nothing is told; a memset counts as a kernel,
  // by a number of its own.

  // A kernel. True: it is the first of an iteration, for all we know (report().confidence says how
  // well that is).
  bool launch(uint64_t function, uint32_t blocks, uint64_t stream, Moment now) {
    return !write_down(function, blocks, stream) && launch_now(function, blocks, 1, stream, now);
  }
  // What launch() tries first. False: nothing was done, it has to look at this launch.
  [[gnu::always_inline]] bool write_down(uint64_t function, uint32_t blocks, uint64_t stream) {
    if (room_ == 0 || stream != written_stream_ || (is_at_loop_ && !is_below_top(function)))
      return false;
    --room_;
    written_[written_count_++] = {function, blocks};
    return true;
  }
  // A graph: weighs as much as 64 kernels. `graph`: what stays the same from launch to launch.
  bool graph_launch(uint64_t graph, uint64_t stream, Moment now) {
    return launch_now(graph, 0, kGraphWeight, stream, now);
  }
  // The launch that has just been told of on `stream`, and that began an iteration, was held back
  // until then: that time belongs to no iteration.
  void held(uint64_t stream, uint64_t until_ns);
  // `waits`: the call returned only when the copy had been done.
  void copy(CopyWay way, uint64_t bytes, bool waits, uint64_t stream, Moment now);
  // The program waited until `stream`, or kAllStreams, had done its work; now_ns: after that.
  void waited(uint64_t stream, uint64_t now_ns);

  // `stream` was made to wait for what another one does (cuStreamWaitEvent). If data was handed in
  // elsewhere since it last was, a loader's stream for instance, this is where it takes it.
  void ordered(uint64_t stream);

  // It need be told of no copy and no wait, and of one launch in kLaunchesPerLook. After each that
  // it is told of, this must be asked again.
  bool is_asleep() const { return is_asleep_; }

  IterationReport report() const;
  bool is_trusted() const { return is_trusted_; }

 private:
  static constexpr uint32_t kStreams = 16;
  static constexpr uint32_t kGraphWeight = 64;
  static constexpr uint32_t kShareLaunches = 1024;

  struct Stream {
    uint64_t handle = 0;
    uint64_t last_used = 0;                      // launches_ then; 0: free entry
    uint32_t previous = 0, before_previous = 0;  // functions; 0: none yet
    uint32_t position = 0;                       // weight of the launches so far
    uint32_t recent = 0;                         // the same, halved now and then
    uint8_t marks = 0;                           // since the last launch
    bool is_running = false;
    bool is_young = true;
    bool has_begun = false;      // an iteration
    bool is_counted = false;     // that iteration, in the report's count
    bool has_looped = false;     // without a mark, since the last that began at one
    uint32_t unit_position = 0;  // where the present unit began
    uint32_t input_bytes = 0;    // since the last launch
    uint64_t inputs = 0;         // bytes of all streams, that it knows of
    uint32_t marked_begin = 0;   // position of the last iteration that began at a mark
    float marked_launches = 0;   // of such iterations, the longer ones
    float last_marked = 0;       // of the last one
    uint64_t began_ns = 0;
    uint64_t idle_at_begin = 0;
    IterationSketch sketch;
  };

  struct Written {
    uint64_t function;
    uint32_t blocks;
  };

  [[gnu::always_inline]] bool is_below_top(uint64_t handle) {
    const uint32_t function = function_number(handle);
    const uint32_t transition = transition_number(written_before_[0], function);
    if (transition_number(written_before_[1], transition) == top_step_) return false;
    written_before_[1] = written_before_[0];
    written_before_[0] = function;
    return true;
  }
  bool launch_now(uint64_t handle, uint32_t blocks, uint32_t weight, uint64_t stream, Moment now);
  bool sleeps_on(uint64_t handle);
  void note_futility();
  void make_room_to_write(const Stream& stream);
  void look_at_written();
  bool arrive(uint64_t handle, uint32_t blocks, uint32_t weight, uint64_t stream, Moment now);
  Stream& stream_of(uint64_t handle) {
    if (streams_[latest_].handle == handle && streams_[latest_].last_used != 0)
      return streams_[latest_];
    return find_stream(handle);
  }
  Stream& find_stream(uint64_t handle);
  void start(Stream& stream, Moment& now) {
    if (!stream.is_running) set_running(stream, now.ns());
  }
  void set_running(Stream& stream, uint64_t now);
  void set_drained(Stream& stream, uint64_t now);
  bool is_main(const Stream& stream) const {
    return stream.is_young || stream.recent >= busiest_ / 8;
  }
  static bool is_lost(const Stream& stream, uint32_t more = 0) {
    return static_cast<float>(stream.position - stream.marked_begin + more) >
           2 * stream.marked_launches;
  }
  static void add_input(Stream& stream, uint64_t bytes);
  void note_marked_begin(Stream& stream);
  void halve_shares();
  void begin(Stream& stream, uint32_t function, uint32_t blocks, uint64_t now);
  void set_outcomes(uint32_t outcomes, uint32_t count);
  void forget_outcomes_of_old_rules(bool is_loop);
  float confidence() const;

  // Launches into the latest stream that nobody has looked at, and how many more there may be.
  uint32_t most_written_;
  uint64_t written_stream_ = 0;
  uint32_t room_ = 0, written_count_ = 0;
  bool is_at_loop_ = false;  // the stream is lost, and this is the top of its loop, after these two
  uint32_t top_step_ = 0, written_before_[2] = {};
  Written written_[kMostWritten];

  Stream streams_[kStreams];
  uint32_t latest_ = 0;
  uint64_t launches_ = 0;
  uint32_t learn_left_ = 0;  // launches to learn though nothing asks for it
  bool is_asleep_ = false;
  uint32_t slept_ = 0;   // launches
  uint32_t futile_ = 0;  // times kShareLaunches in which nothing was found
  uint32_t until_halved_ = kShareLaunches;
  uint32_t busiest_ = 0;  // most `recent` of a stream

  uint32_t running_ = 0;  // streams that may have work
  uint64_t drained_ns_ = 0;
  uint64_t idle_ns_ = 0;  // in all
  uint64_t inputs_ = 0;   // bytes copied to the GPU so far, but scalars
  uint32_t breaks_ = 0;   // marks of output so far: distances across one say nothing

  uint32_t outcomes_ = 0;  // newest in bit 0; 1: as expected
  bool is_trusted_ = false;
  uint32_t outcome_count_ = 0;
  uint32_t edge_rules_ = 0, loop_rules_ = 0;  // changes of them when those were last forgotten
  uint64_t count_ = 0, ended_ = 0;
  uint64_t busy_sum_ns_ = 0, period_sum_ns_ = 0;
  Phase phase_ = Phase::kUnknown;
  IterationTimes times_;
  IterationKinds kinds_;
  IterationEdges edges_;
  IterationLoops loops_;
};

static_assert(sizeof(IterationRecogniser) <= 96UL * 1024);

}  // namespace gpushare::shim
