// SPDX-License-Identifier: Apache-2.0
// Recognises, from nothing but the launches, copies and waits of a process, where an iteration of
// its main loop begins: a training step, a decoding step, a request. README.md beside this file
// says how, how well, and what it gets wrong.
//
// Pure: no clock of its own, no driver, no allocation, no failure. One caller at a time, which
// gives the time (Progress, under its lock). About 93 KiB, fixed; every call is O(1): 13 to 27 ns
// (bench/intercept/shim), or that for each of up to 32 launches that were written down.
#pragma once

#include <cstdint>

#include "intercept/shim/iterations/iteration_edges.h"
#include "intercept/shim/iterations/iteration_hash.h"
#include "intercept/shim/iterations/iteration_kinds.h"
#include "intercept/shim/iterations/iteration_loops.h"
#include "intercept/shim/iterations/iteration_times.h"

namespace gpushare::shim {

enum class CopyWay : uint8_t { kToGpu, kFromGpu, kOnGpu };

// A moment. A clock is read only when ns() is called, because that costs as much as all the rest.
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
  uint64_t ended = 0;    // those of `count` after which another one began on their stream
  float confidence = 0;  // 0..1; below kTrusted nothing else here is worth reading
  uint64_t mean_ns = 0;  // from begin to begin on a stream, over about the last 64; 0: unknown
  uint64_t p99_ns = 0;   // over about the last 1,000, at most 1/8 too long; 0: unknown
  uint64_t busy_ns = 0;  // as mean_ns, without the time in which the GPU certainly had no work
  uint64_t busy_sum_ns = 0, period_sum_ns = 0;  // sums over all that ended
  float launches = 0;                           // mean
  Phase phase = Phase::kUnknown;                // of the iteration that began last
};

class IterationRecogniser {
 public:
  static constexpr float kTrusted = 0.75F;
  static constexpr uint32_t kMostWritten = 32;
  static constexpr uint32_t kLaunchesPerLook = 64;
  static constexpr uint64_t kAllStreams = ~0ULL;

  // `most_written`: how many launches may be written down, at most kMostWritten. It changes no
  // answer.
  explicit IterationRecogniser(uint32_t most_written = kMostWritten)
      : most_written_(most_written) {}

  // The caller does not tell of launches into a graph that is being captured, and tells of a memset
  // as of a kernel with a number of its own.

  // A kernel. Returns true if it is the first of an iteration, as well as is known
  // (report().confidence).
  bool launch(uint64_t function, uint32_t blocks, uint64_t stream, Moment now) {
    return !write_down(function, blocks, stream) && launch_now(function, blocks, 1, stream, now);
  }
  // Writes the launch down, to be looked at later. False: nothing was done, and this launch has to
  // be looked at now. launch() tries this first.
  [[gnu::always_inline]] bool write_down(uint64_t function, uint32_t blocks, uint64_t stream) {
    if (room_ == 0 || stream != written_stream_ || (is_at_loop_ && !is_below_top(function)))
      return false;
    --room_;
    written_[written_count_++] = {function, blocks};
    return true;
  }
  // A graph; it counts as 64 kernels. `graph`: a number that is the same at each of its launches.
  bool graph_launch(uint64_t graph, uint64_t stream, Moment now) {
    return launch_now(graph, 0, kGraphWeight, stream, now);
  }
  // The launch that was told last began an iteration on `stream` and was held back until
  // `until_ns`. That time belongs to no iteration.
  void held(uint64_t stream, uint64_t until_ns);
  // `waits`: the call returned only when the copy had been done.
  void copy(CopyWay way, uint64_t bytes, bool waits, uint64_t stream, Moment now);
  // The program has waited until `stream`, or kAllStreams, had done its work. `now_ns`: after that.
  void waited(uint64_t stream, uint64_t now_ns);

  // `stream` was made to wait for another one (cuStreamWaitEvent). If the program has copied data
  // in on other streams since the last such wait (in a loader's stream, say), `stream` takes it
  // here.
  void ordered(uint64_t stream);

  // While true, the caller may leave out copies and waits, and all but one launch in
  // kLaunchesPerLook. It must ask again after each launch that it tells of.
  bool is_asleep() const { return is_asleep_; }

  IterationReport report() const;
  bool is_trusted() const { return is_trusted_; }

 private:
  static constexpr uint32_t kStreams = 16;
  static constexpr uint32_t kGraphWeight = 64;
  static constexpr uint32_t kShareLaunches = 1024;  // after which streams' shares are halved

  struct Stream {
    uint64_t handle = 0;
    uint64_t last_used = 0;                      // the value of launches_ then; 0: a free entry
    uint32_t previous = 0, before_previous = 0;  // functions; 0: none yet
    uint32_t position = 0;                       // the weight of all launches so far
    uint32_t recent = 0;  // the weight of launches of late; see kShareLaunches
    uint8_t marks = 0;    // Mark, since the last launch
    bool is_running = false;
    bool is_young = true;
    bool has_begun = false;      // an iteration has begun on it
    bool is_counted = false;     // that iteration is in the report's count
    bool has_looped = false;     // an iteration began without a mark since one began at a mark
    uint32_t unit_position = 0;  // where the present unit began
    uint32_t input_bytes = 0;    // copied in since the last launch
    uint64_t inputs = 0;         // the value of inputs_ up to which it has taken the data
    uint32_t marked_begin = 0;   // position of the last iteration that began at a mark
    float marked_launches = 0;   // how many launches the longer ones of those have
    float last_marked = 0;       // how many the last one of them had
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

  // Launches into the latest stream that were written down, and how many more may be.
  uint32_t most_written_;
  uint64_t written_stream_ = 0;
  uint32_t room_ = 0, written_count_ = 0;
  // The stream is lost, and its loop has a top, which must not be written down: top_step_ is that
  // top, and these are the last two functions.
  bool is_at_loop_ = false;
  uint32_t top_step_ = 0, written_before_[2] = {};
  Written written_[kMostWritten];

  Stream streams_[kStreams];
  uint32_t latest_ = 0;
  uint64_t launches_ = 0;
  uint32_t learn_left_ = 0;  // launches from which to learn loops although marks suffice
  bool is_asleep_ = false;
  uint32_t slept_ = 0;   // launches since it fell asleep
  uint32_t futile_ = 0;  // how often kShareLaunches went by in which nothing was found
  uint32_t until_halved_ = kShareLaunches;
  uint32_t busiest_ = 0;  // the largest `recent` of all streams

  uint32_t running_ = 0;     // streams that may have work
  uint64_t drained_ns_ = 0;  // when the last of them was found done
  uint64_t idle_ns_ = 0;     // sum of the times in which none had work
  uint64_t inputs_ = 0;      // bytes copied to the GPU so far, without scalars
  uint32_t breaks_ = 0;      // marks of output so far: distances across one say nothing

  uint32_t outcomes_ = 0;  // one bit for each iteration, the newest in bit 0; 1: as expected
  bool is_trusted_ = false;
  uint32_t outcome_count_ = 0;
  uint32_t edge_rules_ = 0, loop_rules_ = 0;  // changes() of both when outcomes_ was last cleared
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
