// SPDX-License-Identifier: Apache-2.0
// The credit gate: launches that are in line are held on the GPU itself. In front of a launch its
// stream is made to wait for a word in the slot, which the agent sets (shmctl/shim/credit.h), with
// a number that rises through the whole process; so what is let through never waits for what is
// held, but for a launch that another thread is making at that moment. A wait is put in line for
// every kSpacingNs of work, and for each launch that is longer. Only in processes with the feature
// kShimCredit.
//
// The wrappers call this on any thread, with the stream held by StreamUse; a child of fork() starts
// anew. What captures gets no wait. Where waits are not possible, or could hold apart what must run
// together, launches are held on the host alone, and ShimCredit::held says why.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/credit/lengths.h"
#include "intercept/shim/credit/memory_driver.h"
#include "intercept/shim/link/attach.h"
#include "shmctl/shim/credit.h"

namespace gpushare::shim {

class Credits {
 public:
  static constexpr int64_t kSpacingNs = kCreditSpacing.count();
  // The GPU says how far it is at least this far apart; a write costs about as much as a wait.
  static constexpr int64_t kWriteSpacingNs = 1'000'000;
  // So many waits may be in line beyond what the agent has let through; the rest waits on the host.
  static constexpr int32_t kMostAhead = 64;
  // Launches of one stream between two samples of their length, plus up to as many again; while
  // few are known, or where a launch takes kSpacingNs and more, so that events cost little.
  static constexpr uint32_t kSampleEvery = 48, kSampleSoon = 2;

  // Null: the feature is off.
  static Credits* get() {
    Process& process = this_process();
    if ((process.features.load(std::memory_order_relaxed) & kShimCredit) == 0) return nullptr;
    Credits* there = process.credits.load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make();
  }

  struct Launch {
    CUstream stream = nullptr;      // where it is to run; no null handle
    CUfunction function = nullptr;  // null: unknown, or none
    Lengths::Class of = Lengths::kKernel;
  };
  // Before the driver's call. Returns true if after_launch() is to follow. `mine`: the slot of the
  // process, which may have got another one since it was read.
  bool before_launch(ShimSlot& mine, const Launch& launch);
  void after_launch(const Launch& launch);
  // The number of the stream's last wait in that slot; no null handle.
  uint32_t last_in(const ShimSlot& mine, CUstream stream);
  // The host has seen that the wait with this number of that slot was let through.
  void note_run(ShimSlot& mine, uint32_t number);

  // After the driver's calls by which contexts come and go.
  void on_retained(CUdevice device, CUcontext primary);
  void after_release(CUdevice device);  // of the primary context, which may have ended
  void context_ended(CUcontext context);

 private:
  static constexpr int kMostDevices = 16;
  static constexpr uint32_t kEntries = 1024, kFunctions = 1024;  // powers of two

  // What is known of one stream. Streams that meet at one entry take it from each other, which
  // costs waits; one that was destroyed leaves a few launches to the next at its address.
  struct alignas(32) Entry {
    std::atomic<uintptr_t> stream;
    std::atomic<int64_t> left_ns;       // of work before the next wait
    std::atomic<int64_t> unwritten_ns;  // of work since the last write
    std::atomic<uint32_t> until_sample;
    std::atomic<uint32_t> last;  // number of its last wait; 0: it has none in this slot
  };

  static Credits* make();
  static uintptr_t key_of(CUstream stream);
  Entry& entry_of(uintptr_t key);
  bool prepare(ShimSlot& mine);
  bool is_collective(CUfunction function);
  void fall_back(ShimHeld why);
  static bool comes_after_rest(const ShimCredit& credit);
  bool is_capturing(CUstream stream) const;
  bool put_wait(ShimSlot& mine, Entry& entry, uintptr_t key, CUstream stream, int64_t cost_ns);
  void note_last(const ShimSlot& mine, Entry& entry, uint32_t number);
  void await_room(ShimSlot& mine, uint32_t last, uint32_t number, int64_t cost_ns);
  bool begin_sample(Entry& entry, const Launch& launch, bool is_known_not_to_capture);

  const MemoryDriver* driver_;
  std::atomic<uint32_t> off_;    // ShimHeld, once waits are over for good
  std::atomic<ShimSlot*> slot_;  // which is pinned; null: none is, or another one is about to be
  std::atomic<CUdeviceptr> on_gpu_;  // of that slot; changes while slot_ is null
  std::atomic<CUcontext> context_;   // in which it is pinned: the only one in which waits are put
  std::atomic<CUcontext> primaries_[kMostDevices];
  SpinLock lock_;    // of pinning
  bool is_watched_;  // protected by lock_: the watcher has been started (watcher.h)
  Lengths lengths_;
  // The agent is told that work begins at least this far apart, and after that that it has ended.
  static constexpr uint64_t kBetweenTellsNs = 2'000'000;
  void tell_of_begin();
  std::atomic<uint64_t> next_tell_ns_;
  std::atomic<bool> has_told_;
  std::atomic<uint32_t> random_;
  std::atomic<uint32_t> stuck_at_;  // ShimCredit::reached, for whose change nobody waits any more
  std::atomic<CUfunction> known_functions_[kFunctions];  // that are no collectives
  Entry entries_[kEntries];
};

}  // namespace gpushare::shim
