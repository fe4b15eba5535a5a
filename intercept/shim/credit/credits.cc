// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/credits.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "intercept/shim/credit/watcher.h"
#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/link/hash.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/wake.h"
#include "shmctl/shim/credit.h"

namespace gpushare::shim {
namespace {

// Waits on the host until the word is at most so many numbers behind, or the agent is dead.
void await_credit(ShimSlot& mine, uint32_t number) {
  std::atomic<uint32_t>& word = mine.credit.word;
  uint32_t now = word.load(std::memory_order_acquire);
  if (__builtin_expect(credit_lacking(now, number) <= Credits::kMostAhead, 1)) return;
  const uint64_t begin = monotonic_ns();
  mine.waiting.fetch_add(1, std::memory_order_relaxed);
  for (; credit_lacking(now, number) > Credits::kMostAhead;
       now = word.load(std::memory_order_acquire)) {
    if (!is_agent_alive(mine)) {
      open_credit(mine);
      break;
    }
    wait_on(word, now);
  }
  mine.waiting.fetch_sub(1, std::memory_order_relaxed);
  mine.waited_ns.fetch_add(monotonic_ns() - begin, std::memory_order_relaxed);
}

}  // namespace

Credits* Credits::make() {
  const KeepErrno errno_of_the_program;
  Process& process = this_process();
  const MemoryDriver* const functions = memory_driver();
  void* memory =
      ::mmap(nullptr, sizeof(Credits), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    process.features.fetch_and(~uint32_t{kShimCredit}, std::memory_order_relaxed);
    slot().credit.held.store(ShimHeld::kNotPinned, std::memory_order_relaxed);
    return nullptr;
  }
  auto* made = static_cast<Credits*>(memory);  // zero bytes are one that has put no wait yet
  made->driver_ = functions;
  if (functions == nullptr) made->fall_back(ShimHeld::kNoMemoryOperations);
  Credits* there = nullptr;
  if (process.credits.compare_exchange_strong(there, made, std::memory_order_acq_rel)) return made;
  ::munmap(memory, sizeof(Credits));
  return there;
}

// Each thread's own default stream has the same handle.
uintptr_t Credits::key_of(CUstream stream) {
  static constinit thread_local char own = 0;
  return reinterpret_cast<uintptr_t>(
      stream == GS_CU_STREAM_PER_THREAD ? static_cast<void*>(&own) : static_cast<void*>(stream));
}

Credits::Entry& Credits::entry_of(uintptr_t key) { return entries_[place_in_table<kEntries>(key)]; }

void Credits::fall_back(ShimHeld why) {
  off_.store(static_cast<uint32_t>(why), std::memory_order_relaxed);
  slot().credit.held.store(why, std::memory_order_relaxed);
}

// Pins the slot where the GPU can read it. Returns false if no wait can be put now.
bool Credits::prepare(ShimSlot& mine) {
  const KeepErrno errno_of_the_program;
  const TryLocked locked(lock_);  // a profiler's callback may launch within the calls below
  if (!locked.is_held()) return false;
  ShimSlot* const before = slot_.load(std::memory_order_relaxed);
  if (before == &mine) return true;
  CUcontext context = nullptr;
  if (driver_->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return false;
  if (&slot() != &mine) return false;  // the thread has stood still, and another one is there now
  // The agent of the slot before is dead, and nobody else sets its word any more.
  if (before != nullptr) open_credit(*before);
  if (const uint32_t off = off_.load(std::memory_order_relaxed); off != 0) {
    mine.credit.held.store(static_cast<ShimHeld>(off), std::memory_order_relaxed);
    return false;
  }
  const AllowedInCaptures allowed(*driver_);
  CUdeviceptr on_gpu = 0;
  const CUresult pinned = driver_->cuMemHostRegister_v2(
      &mine, kShimSlotBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if ((pinned != CUDA_SUCCESS && pinned != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) ||
      driver_->cuMemHostGetDevicePointer_v2(&on_gpu, &mine, 0) != CUDA_SUCCESS) {
    fall_back(ShimHeld::kNotPinned);
    return false;
  }
  if (!is_watched_ && !start_watcher()) {
    fall_back(ShimHeld::kNotWatched);
    return false;
  }
  is_watched_ = true;
  context_.store(context, std::memory_order_relaxed);
  // Who finds what is written from here on finds that the slot before is pinned no more.
  slot_.store(nullptr, std::memory_order_relaxed);
  on_gpu_.store(on_gpu, std::memory_order_release);
  for (Entry& entry : entries_) entry.last.store(0, std::memory_order_release);
  slot_.store(&mine, std::memory_order_release);
  return true;
}

// By its name, once. A launch may name a kernel of a library in place of a function. NCCL's kernels
// are ncclDevKernel_..., in older versions ncclKernel_...
bool Credits::is_collective(CUfunction function) {
  if (function == nullptr || driver_->cuFuncGetName == nullptr) return false;
  std::atomic<CUfunction>& known =
      known_functions_[place_in_table<kFunctions>(reinterpret_cast<uintptr_t>(function))];
  if (__builtin_expect(known.load(std::memory_order_relaxed) == function, 1)) return false;
  const char* name = nullptr;
  if (driver_->cuFuncGetName(&name, function) != CUDA_SUCCESS &&
      driver_->cuKernelGetName != nullptr &&
      driver_->cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) != CUDA_SUCCESS)
    name = nullptr;
  if (name != nullptr && std::strncmp(name, "nccl", 4) == 0) return true;
  known.store(function, std::memory_order_relaxed);
  return false;
}

// In doubt it does.
bool Credits::is_capturing(CUstream stream) const {
  CUstreamCaptureStatus status{};
  return driver_->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Whether others give way to the process, and it has no work that they know of: what an earlier
// wait leaves to be launched without one, they would not see begin.
bool Credits::comes_after_rest(const ShimCredit& credit) {
  return credit.tells.load(std::memory_order_relaxed) != 0 &&
         credit.issued.load(std::memory_order_relaxed) ==
             credit.run.load(std::memory_order_relaxed);
}

bool Credits::before_launch(ShimSlot& mine, const Launch& launch) {
  if (off_.load(std::memory_order_relaxed) != 0) return false;
  if (__builtin_expect(slot_.load(std::memory_order_acquire) != &mine, 0) && !prepare(mine))
    return false;
  if (__builtin_expect(is_collective(launch.function), 0)) {
    fall_back(ShimHeld::kCollectives);
    return false;
  }
  const auto cost_ns = static_cast<int64_t>(lengths_.mean_ns(launch.of));
  const uintptr_t key = key_of(launch.stream);
  Entry& entry = entry_of(key);
  const int64_t left_ns = entry.left_ns.load(std::memory_order_relaxed);
  const bool is_known = entry.stream.load(std::memory_order_relaxed) == key;
  bool has_put = false;
  if (is_known && cost_ns != 0 && left_ns > 0 && !comes_after_rest(mine.credit)) {
    entry.left_ns.store(left_ns - cost_ns, std::memory_order_relaxed);
  } else {
    has_put = put_wait(mine, entry, key, launch.stream, cost_ns);
    if (!has_put) return false;
  }
  return begin_sample(entry, launch, has_put);
}

// Waits on the host while the process has more in line than ShimCredit::most_ahead_us allows, and
// this stream has something that has not begun. The GPU tells nobody when it gets on, so the
// thread looks again and again; each stream has something in line meanwhile, so the GPU does not
// wait for it. Natively a launch waits only for room in the driver's queue, and a program may rely
// on that: when the GPU does not get on for a while, perhaps because a kernel waits for what this
// thread does next, the launch goes on, and so do those after it until the GPU does.
void Credits::await_room(ShimSlot& mine, uint32_t last, uint32_t number, int64_t cost_ns) {
  const uint32_t most_us = mine.credit.most_ahead_us.load(std::memory_order_relaxed);
  if (__builtin_expect(most_us == 0, 1)) return;
  const std::atomic<uint32_t>& reached = mine.credit.reached;
  uint32_t now = reached.load(std::memory_order_relaxed);
  const int64_t each_ns = std::max(cost_ns, kSpacingNs);
  const auto most = static_cast<int32_t>(std::max<int64_t>(int64_t{most_us} * 1000 / each_ns, 1));
  const auto has_room = [&] {
    return credit_lacking(now, number) <= most || credit_lacking(now, last) <= 0;
  };
  if (has_room() || now == stuck_at_.load(std::memory_order_relaxed)) return;
  const uint64_t patience_ns = static_cast<uint64_t>(most_us) * 1000 + 4 * each_ns;
  uint64_t since = monotonic_ns();
  while (!has_room() && (mine.gate.load(std::memory_order_relaxed) & 1) == 0) {
    sleep_briefly(std::min<int64_t>(each_ns / 4, 500'000));
    const uint32_t before = std::exchange(now, reached.load(std::memory_order_relaxed));
    if (now != before) {
      since = monotonic_ns();
    } else if (monotonic_ns() - since > patience_ns) {
      stuck_at_.store(now, std::memory_order_relaxed);
      return;
    }
  }
}

// Two threads may put waits into one stream, and who got the lower number may be the later one to
// write it down. A number that lies further ahead is from before the numbers came around. Each slot
// numbers its waits anew.
void Credits::note_last(const ShimSlot& mine, Entry& entry, uint32_t number) {
  constexpr uint32_t kMostBetween = 1u << 16;
  uint32_t now = entry.last.load(std::memory_order_acquire);  // pairs with prepare()
  while (slot_.load(std::memory_order_relaxed) == &mine &&
         (now == 0 || now - number >= kMostBetween) &&
         !entry.last.compare_exchange_weak(now, number, std::memory_order_acq_rel)) {
  }
}

// Another thread may find another slot while this one stands still. What is put in line then goes
// on at once, as the word of the slot before is open, and says nothing in the new one.
bool Credits::put_wait(ShimSlot& mine, Entry& entry, uintptr_t key, CUstream stream,
                       int64_t cost_ns) {
  const KeepErrno errno_of_the_program;
  if (is_capturing(stream)) return false;
  CUcontext context = nullptr;
  if (driver_->cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  if (context != context_.load(std::memory_order_relaxed)) {
    fall_back(ShimHeld::kSeveralContexts);
    return false;
  }
  if (!is_agent_alive(mine)) {
    open_credit(mine);
    return false;
  }
  const CUdeviceptr on_gpu = on_gpu_.load(std::memory_order_acquire);  // pairs with prepare()
  if (slot_.load(std::memory_order_relaxed) != &mine) return false;
  const bool is_other = entry.stream.exchange(key, std::memory_order_relaxed) != key;
  if (!is_other)
    await_room(mine, entry.last.load(std::memory_order_relaxed),
               mine.credit.issued.load(std::memory_order_relaxed) + 1, cost_ns);
  const uint32_t before = mine.credit.issued.fetch_add(1, std::memory_order_acq_rel);
  const uint32_t number = before + 1;
  if (mine.credit.tells.load(std::memory_order_relaxed) != 0 &&
      before == mine.credit.run.load(std::memory_order_relaxed))
    tell_of_begin();
  await_credit(mine, number);
  note_last(mine, entry, number);
  const CUresult put = driver_->cuStreamWaitValue32_v2(
      stream, on_gpu + offsetof(ShimSlot, credit) + offsetof(ShimCredit, word), number,
      CU_STREAM_WAIT_VALUE_GEQ);
  if (put == CUDA_ERROR_NOT_SUPPORTED) fall_back(ShimHeld::kNoMemoryOperations);
  if (put != CUDA_SUCCESS) return false;  // the launch tells the program why
  if (mine.credit.held.load(std::memory_order_relaxed) != ShimHeld::kOnGpu) {
    mine.credit.held.store(ShimHeld::kOnGpu, std::memory_order_relaxed);
    wake_agent();  // from now on it takes turns with others
  }
  const int64_t unwritten_ns = entry.unwritten_ns.load(std::memory_order_relaxed) + kSpacingNs;
  if (is_other || cost_ns == 0 || cost_ns >= kSpacingNs || unwritten_ns >= kWriteSpacingNs) {
    // Without NO_MEMORY_BARRIER, which this version of the function does not take: such a write
    // never arrives (H200, driver 580.159.04).
    const CUresult written = driver_->cuStreamWriteValue32_v2(
        stream, on_gpu + offsetof(ShimSlot, credit) + offsetof(ShimCredit, reached), number,
        CU_STREAM_WRITE_VALUE_DEFAULT);
    if (written != CUDA_SUCCESS) fall_back(ShimHeld::kNoMemoryOperations);
    entry.unwritten_ns.store(0, std::memory_order_relaxed);
  } else {
    entry.unwritten_ns.store(unwritten_ns, std::memory_order_relaxed);
  }
  entry.left_ns.store(cost_ns == 0 ? 0 : kSpacingNs - cost_ns, std::memory_order_relaxed);
  return true;
}

// Random steps, because a program that repeats itself would always show the same launch.
bool Credits::begin_sample(Entry& entry, const Launch& launch, bool is_known_not_to_capture) {
  const uint32_t until = entry.until_sample.load(std::memory_order_relaxed);
  if (__builtin_expect(until != 0 && lengths_.mean_ns(launch.of) != 0, 1)) {
    entry.until_sample.store(until - 1, std::memory_order_relaxed);
    return false;
  }
  const KeepErrno errno_of_the_program;
  if (!is_known_not_to_capture && is_capturing(launch.stream)) return false;
  const AllowedInCaptures allowed(*driver_);
  if (!lengths_.begin(*driver_, context_.load(std::memory_order_relaxed), launch.stream, launch.of))
    return false;
  const uint32_t random = random_.load(std::memory_order_relaxed) * 1664525 + 1013904223;
  random_.store(random, std::memory_order_relaxed);
  const bool is_soon = lengths_.is_young(launch.of) ||
                       lengths_.mean_ns(launch.of) >= static_cast<uint64_t>(kSpacingNs);
  const uint32_t every = is_soon ? kSampleSoon : kSampleEvery;
  entry.until_sample.store(every + (random >> 16) % every, std::memory_order_relaxed);
  ShimCredit& told = slot().credit;
  told.launch_ns.store(lengths_.mean_ns(Lengths::kKernel), std::memory_order_relaxed);
  told.graph_ns.store(lengths_.mean_ns(Lengths::kGraph), std::memory_order_relaxed);
  return true;
}

void Credits::after_launch(const Launch& launch) {
  const KeepErrno errno_of_the_program;
  lengths_.end(*driver_, launch.stream);
}

// Not each wait has a write behind it, so of the last ones the GPU alone would never say that they
// were let through. A write for another stream may come after this one; then there is work there.
// A number that lies ahead of all waits is of another slot, as each numbers them anew, and `run`
// never falls again.
void Credits::note_run(ShimSlot& mine, uint32_t number) {
  ShimCredit& credit = mine.credit;
  if (credit_lacking(credit.issued.load(std::memory_order_relaxed), number) > 0) return;
  advance_credit(credit.reached, number);
  advance_credit(credit.run, number);
  if (has_told_.load(std::memory_order_relaxed) &&
      number == credit.issued.load(std::memory_order_relaxed)) {
    has_told_.store(false, std::memory_order_relaxed);
    wake_agent();
  }
}

// The agent hears nobody who wakes it too often.
void Credits::tell_of_begin() {
  const uint64_t now = monotonic_ns();
  if (now < next_tell_ns_.load(std::memory_order_relaxed)) return;
  next_tell_ns_.store(now + kBetweenTellsNs, std::memory_order_relaxed);
  has_told_.store(true, std::memory_order_relaxed);
  wake_agent();
}

// Where the stream is not known, or has its last wait in the slot before: one behind which all is
// known to have run.
uint32_t Credits::last_in(const ShimSlot& mine, CUstream stream) {
  const uintptr_t key = key_of(stream);
  const Entry& entry = entry_of(key);
  const bool is_known = slot_.load(std::memory_order_acquire) == &mine &&
                        entry.stream.load(std::memory_order_relaxed) == key;
  return (is_known ? entry.last : mine.credit.run).load(std::memory_order_relaxed);
}

void Credits::on_retained(CUdevice device, CUcontext primary) {
  if (device >= 0 && device < kMostDevices)
    primaries_[device].store(primary, std::memory_order_relaxed);
}

void Credits::after_release(CUdevice device) {
  if (device < 0 || device >= kMostDevices) return;
  const KeepErrno errno_of_the_program;
  unsigned flags = 0;
  int is_active = 0;
  if (driver_ != nullptr &&
      driver_->cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
      is_active == 0)
    context_ended(primaries_[device].load(std::memory_order_relaxed));
}

// What was pinned in it is pinned no more.
void Credits::context_ended(CUcontext context) {
  const Locked locked(lock_);
  if (context == nullptr || context_.load(std::memory_order_relaxed) != context) return;
  lengths_.forget(context);
  slot_.store(nullptr, std::memory_order_release);
  context_.store(nullptr, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
