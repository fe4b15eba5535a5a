// SPDX-License-Identifier: Apache-2.0
// The iterations of this process. What the wrappers tell of its calls goes to the recogniser, what
// it announces itself (gpushare.h) is counted; both are published in the slot, and the next
// iteration waits while the agent says so (ShimIterations::run_until). Only in processes with the
// feature kShimIterations.
//
// Any thread, also signal handlers; a child of fork() starts over. One brief lock protects all: a
// call that finds it taken for some microseconds is not noted (`skipped`), so that nothing but the
// boundary ever holds a call up; at worst one iteration is not recognised. What waits at the
// boundary is the first launch of an iteration, or begin() if iterations are announced; not what
// other threads launch. As at the gate, it goes on when the agent is dead.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/driver_types.h"
#include "intercept/shim/driver/kinds.h"
#include "intercept/shim/iterations/brief_lock.h"
#include "intercept/shim/iterations/iteration.h"
#include "intercept/shim/link/attach.h"
#include "shmctl/shim/published.h"

namespace gpushare::shim {

namespace detail {
// The stream or event that this thread last queried and found unfinished; 0: none. Its address also
// serves as a number for the thread.
extern constinit thread_local uint64_t polled;
}  // namespace detail

class Progress {
 public:
  // Null: the feature is off, or there is no memory.
  static Progress* get() {
    Process& process = this_process();
    if ((process.features.load(std::memory_order_relaxed) & kShimIterations) == 0) return nullptr;
    Progress* there = process.progress.load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make();
  }

  // The number of a stream, as the program knows it. A thread's own default stream has one number
  // in each thread; the legacy streams of all contexts share one.
  [[gnu::always_inline]] static uint64_t number_of(CUstream stream, Flavor flavor) {
    if (stream == GS_CU_STREAM_PER_THREAD || (stream == nullptr && flavor == Flavor::kPerThread))
      return reinterpret_cast<uint64_t>(&detail::polled);
    return reinterpret_cast<uint64_t>(stream == nullptr ? GS_CU_STREAM_LEGACY : stream);
  }

  // If nothing is told because the recogniser is asleep, makes the next launch be told. To be
  // called before one launch in kLaunchesPerLook.
  static void look_up() {
    Process& process = this_process();
    if (process.is_telling.load(std::memory_order_relaxed)) return;
    const Progress* there = process.progress.load(std::memory_order_acquire);
    if (there == nullptr || !there->is_guessing()) return;
    process.is_telling.store(true, std::memory_order_seq_cst);
    if (!there->is_guessing()) process.is_telling.store(false, std::memory_order_relaxed);
  }

  // False: the program announces its iterations, so no call needs to be told (Process::is_telling).
  bool is_guessing() const { return !is_announcing_.load(std::memory_order_seq_cst); }

  // Does what launched() does for most kernels, without a call of another function. False: nothing
  // was done, and launched() is to be called.
  [[gnu::always_inline]] bool has_written_down(uint64_t function, uint32_t blocks,
                                               uint64_t stream) {
    if (is_any_capturing() || !lock_.try_lock_once()) return false;
    const bool is_done = recogniser_.write_down(function, blocks, stream);
    lock_.unlock();
    if (is_done) detail::polled = 0;
    return is_done;
  }
  // To be called before the driver's call. May wait at the boundary.
  void launched(uint64_t function, uint32_t blocks, uint64_t stream);
  void launched_graph(uint64_t graph, uint64_t stream);
  // To be called after the driver's call, if it succeeded.
  void copied(CopyWay way, uint64_t bytes, bool waits, uint64_t stream);
  void recorded(CUevent event, uint64_t stream);
  void ordered(uint64_t stream);
  void waited(uint64_t stream);
  void waited_for(CUevent event);

  // The program has queried `what` (not 0), with this result. Returns true if that ended a wait: it
  // is done now, and this thread had found it unfinished before and launched nothing since.
  static bool has_polled(uint64_t what, CUresult result);

  // While any stream captures, a launch must be asked about.
  void begin_capture() { captures_.fetch_add(1, std::memory_order_relaxed); }
  void end_capture();
  bool is_any_capturing() const {
    return __builtin_expect(captures_.load(std::memory_order_relaxed) != 0, 0);
  }
  bool is_capturing(CUstream stream) const;

  // What the program announces. False: the lock was taken for too long, and it is not noted.
  bool arrive(uint64_t* arrived_ns);
  bool begin(ShimPhase phase, uint64_t* began_ns);
  bool end(uint64_t began_ns, uint64_t arrived_ns);
  bool set_slo(uint32_t us);
  // Iterations from now on; those that have begun count besides.
  bool expect(uint64_t iterations);

 private:
  static constexpr uint32_t kEvents = 1024;

  struct Recorded {
    CUevent event;
    uint64_t stream;
  };
  using Ask = CUresult (*)(CUstream, CUstreamCaptureStatus*);

  static Progress* make();
  bool lock_or_skip();
  bool lock_to_announce();
  Recorded& place_of(CUevent event);
  template <class Launch>
  void note_launch(uint64_t stream, const Launch& launch);
  bool begin_recognised(uint64_t stream);
  bool must_wait(const ShimIterations& words) const;
  bool pass_boundary();
  void take_recognised();
  void count_time(uint64_t ns, uint64_t times);
  void announce();
  bool publish_and_unlock();
  void note_launches();

  Ask is_capturing_ = nullptr;
  std::atomic<uint32_t> skipped_{0};
  // What a launch looks at lies on one cache line.
  alignas(64) std::atomic<bool> is_announcing_{false};
  BriefLock lock_;  // protects what follows, except `captures_`
  std::atomic<uint32_t> captures_{0};
  IterationRecogniser recogniser_;
  PublishedIterations now_{};
  // Announced: the launches, and the iterations begun, when the program announced its first one.
  uint64_t launches_before_ = 0, begun_before_ = 0;
  IterationTimes periods_, spans_;  // announced: from begin to begin, from begin to end
  Recorded events_[kEvents] = {};   // by hash; a later recording takes the place of an earlier one
};

}  // namespace gpushare::shim
