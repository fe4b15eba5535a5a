// SPDX-License-Identifier: Apache-2.0
// The iterations of this process: what the wrappers tell of its calls goes to the recogniser, what
// it announces itself (gpushare.h) is counted; both are published in the slot, and the next
// iteration is held back when the agent says so (ShimIterations::run_until). Only in processes with
// the feature kShimIterations.
//
// Any thread, also signal handlers, and after fork(): the child starts over. One lock protects all.
// Whoever finds it taken tries again for a few microseconds, and then is not taken note of
// (`skipped`): nobody is ever held up for longer, whatever the holder of the lock is doing, and a
// signal handler that interrupted the holder goes on. The worst of it is an iteration that is not
// recognised.
//
// Held back is the first launch of an iteration, or begin() where iterations are announced; not
// what the program does before it, nor what other threads launch meanwhile. As at the gate, it goes
// on when the agent is dead.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/driver_types.h"
#include "intercept/shim/driver/kinds.h"
#include "intercept/shim/iterations/iteration.h"
#include "intercept/shim/link/attach.h"
#include "shmctl/shim/published.h"

namespace gpushare::shim {

// Taken for tens of nanoseconds at a time.
class BriefLock {
 public:
  bool try_lock_once() {
    return __builtin_expect(!held_.exchange(true, std::memory_order_acquire), 1);
  }
  bool try_lock() { return try_lock_once() || try_more(); }
  // For who can spare a moment: a holder that is not running gets the chance to.
  bool try_lock_for_long();
  // REQUIRES: the caller has already had it in this call. Then what its thread was doing when a
  // signal came does not hold it.
  void lock();
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kAttempts = 64, kTurns = 200;
  bool try_more();

  std::atomic<bool> held_{false};
};

namespace detail {
// What this thread last asked about in vain; 0: nothing. Its address stands for the thread.
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

  // A stream, as the program knows it. The default stream of a thread is that thread's; the legacy
  // one is the same for all contexts.
  [[gnu::always_inline]] static uint64_t number_of(CUstream stream, Flavor flavor) {
    if (stream == GS_CU_STREAM_PER_THREAD || (stream == nullptr && flavor == Flavor::kPerThread))
      return reinterpret_cast<uint64_t>(&detail::polled);
    return reinterpret_cast<uint64_t>(stream == nullptr ? GS_CU_STREAM_LEGACY : stream);
  }

  // Where nothing is told because the recogniser is asleep, the next launch is. To be called before
  // one in kLaunchesPerLook.
  static void look_up() {
    Process& process = this_process();
    if (process.is_telling.load(std::memory_order_relaxed)) return;
    const Progress* there = process.progress.load(std::memory_order_acquire);
    if (there == nullptr || !there->is_guessing()) return;
    process.is_telling.store(true, std::memory_order_seq_cst);
    if (!there->is_guessing()) process.is_telling.store(false, std::memory_order_relaxed);
  }

  // False: nothing of what follows would be taken note of, or asked for (Process::is_telling).
  bool is_guessing() const { return !is_announcing_.load(std::memory_order_seq_cst); }

  // What launched() does of most kernels, without a call of another function. False: nothing was
  // done.
  [[gnu::always_inline]] bool has_written_down(uint64_t function, uint32_t blocks,
                                               uint64_t stream) {
    if (is_any_capturing() || !lock_.try_lock_once()) return false;
    const bool is_done = recogniser_.write_down(function, blocks, stream);
    lock_.unlock();
    if (is_done) detail::polled = 0;
    return is_done;
  }
  // Before the driver's call. May wait.
  void launched(uint64_t function, uint32_t blocks, uint64_t stream);
  void launched_graph(uint64_t graph, uint64_t stream);
  // After the driver's call, when it succeeded.
  void copied(CopyWay way, uint64_t bytes, bool waits, uint64_t stream);
  void recorded(CUevent event, uint64_t stream);
  void ordered(uint64_t stream);
  void waited(uint64_t stream);
  void waited_for(CUevent event);

  // The program asked whether something has finished. True: it has, and this thread had asked
  // before in vain and launched nothing since: it was waiting.
  // `what`: not 0.
  static bool has_polled(uint64_t what, CUresult result);

  // While any stream captures, a launch must be asked about.
  void begin_capture() { captures_.fetch_add(1, std::memory_order_relaxed); }
  void end_capture();
  bool is_any_capturing() const {
    return __builtin_expect(captures_.load(std::memory_order_relaxed) != 0, 0);
  }
  bool is_capturing(CUstream stream) const;

  // What the program announces. False: skipped.
  bool arrive(uint64_t* arrived_ns);
  bool begin(ShimPhase phase, uint64_t* began_ns);
  bool end(uint64_t began_ns, uint64_t arrived_ns);
  bool set_slo(uint32_t us);

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
  void announce();
  void note_launches();

  Ask is_capturing_ = nullptr;
  std::atomic<uint32_t> skipped_{0};
  // What a launch looks at lies on one line.
  alignas(64) std::atomic<bool> is_announcing_{false};
  BriefLock lock_;  // protects what follows, but `captures_`
  std::atomic<uint32_t> captures_{0};
  IterationRecogniser recogniser_;
  PublishedIterations now_{};
  uint64_t launches_before_ = 0;  // announced: kernels before the first one
  uint64_t begun_before_ = 0;
  IterationTimes periods_, spans_;  // announced: from begin to begin, from begin to end
  Recorded events_[kEvents] = {};   // the last one wins its place
};

}  // namespace gpushare::shim
