// SPDX-License-Identifier: Apache-2.0
// What the wrappers tell, and what is published of recognised iterations. On the thread of the
// call.
#include "intercept/shim/iterations/progress.h"

#include <sys/mman.h>

#include <new>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/link/hash.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

constinit thread_local uint64_t detail::polled = 0;

static_assert(IterationRecogniser::kLaunchesPerLook == kLaunchesPerLook);
static_assert(static_cast<uint32_t>(Phase::kPrefill) == static_cast<uint32_t>(ShimPhase::kPrefill));
static_assert(static_cast<uint32_t>(Phase::kDecode) == static_cast<uint32_t>(ShimPhase::kDecode));

Progress* Progress::make() {
  const KeepErrno errno_of_the_program;
  Process& process = this_process();
  void* memory =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    process.features.fetch_and(~uint32_t{kShimIterations}, std::memory_order_relaxed);
    process.is_telling.store(false, std::memory_order_relaxed);
    return nullptr;
  }
  auto* made = new (memory) Progress;
  made->is_capturing_ = reinterpret_cast<Ask>(driver_function("cuStreamIsCapturing"));
  Progress* there = nullptr;
  if (process.progress.compare_exchange_strong(there, made, std::memory_order_acq_rel)) return made;
  ::munmap(memory, sizeof(Progress));
  return there;
}

bool Progress::lock_or_skip() {
  if (__builtin_expect(lock_.try_lock(), 1)) return true;
  skipped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// --- what the wrappers tell ---------------------------------------------------------------------

template <class Launch>
void Progress::note_launch(uint64_t stream, const Launch& launch) {
  detail::polled = 0;
  if (!is_guessing() || !lock_or_skip()) return;
  const bool was_asleep = recogniser_.is_asleep();
  if (__builtin_expect(!launch(), 1)) {
    if (__builtin_expect(recogniser_.is_asleep(), 0)) {
      this_process().is_telling.store(false, std::memory_order_relaxed);
    } else if (__builtin_expect(was_asleep, 0)) {
      for (Recorded& each : events_) each = {};  // recordings while it was asleep were not told
    }
    return lock_.unlock();
  }
  const KeepErrno errno_of_the_program;
  const bool has_waited = begin_recognised(stream);
  lock_.unlock();
  ShimSlot& mine = slot();
  // The gate may have been closed while this launch, which had passed it, stood at the boundary.
  if (has_waited && (mine.gate.load(std::memory_order_relaxed) & 1) != 0) wait_at_gate(mine);
}

void Progress::launched(uint64_t function, uint32_t blocks, uint64_t stream) {
  note_launch(stream, [&] { return recogniser_.launch(function, blocks, stream, &monotonic_ns); });
}

void Progress::launched_graph(uint64_t graph, uint64_t stream) {
  note_launch(stream, [&] { return recogniser_.graph_launch(graph, stream, &monotonic_ns); });
}

void Progress::copied(CopyWay way, uint64_t bytes, bool waits, uint64_t stream) {
  if (!lock_or_skip()) return;
  recogniser_.copy(way, bytes, waits, stream, &monotonic_ns);
  lock_.unlock();
}

Progress::Recorded& Progress::place_of(CUevent event) {
  return events_[place_in_table<kEvents>(reinterpret_cast<uintptr_t>(event) >> 4)];
}

void Progress::recorded(CUevent event, uint64_t stream) {
  if (!lock_or_skip()) return;
  place_of(event) = {event, stream};
  lock_.unlock();
}

void Progress::ordered(uint64_t stream) {
  if (!lock_or_skip()) return;
  recogniser_.ordered(stream);
  lock_.unlock();
}

void Progress::waited(uint64_t stream) {
  const uint64_t now = monotonic_ns();
  if (!lock_or_skip()) return;
  recogniser_.waited(stream, now);
  lock_.unlock();
}

void Progress::waited_for(CUevent event) {
  const uint64_t now = monotonic_ns();
  if (!lock_or_skip()) return;
  const Recorded& found = place_of(event);
  if (found.event == event) recogniser_.waited(found.stream, now);
  lock_.unlock();
}

bool Progress::has_polled(uint64_t what, CUresult result) {
  if (result == CUDA_ERROR_NOT_READY) detail::polled = what;
  if (result != CUDA_SUCCESS || detail::polled != what) return false;
  detail::polled = 0;
  return true;
}

void Progress::end_capture() {
  uint32_t before = captures_.load(std::memory_order_relaxed);
  while (before != 0 &&
         !captures_.compare_exchange_weak(before, before - 1, std::memory_order_relaxed)) {
  }
}

// While another stream captures, the driver does not answer for the legacy stream; nothing may be
// launched into it then, so it counts as capturing.
bool Progress::is_capturing(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return is_capturing_ != nullptr && (is_capturing_(stream, &status) != CUDA_SUCCESS ||
                                      status != CU_STREAM_CAPTURE_STATUS_NONE);
}

// So many iterations took so long. REQUIRES: lock_ is held, so nobody else counts.
void Progress::count_time(uint64_t ns, uint64_t times) {
  ShimTimes& all = slot().times;
  const uint64_t us = ns / 1000;
  auto& count = all.counts[time_class_of(us)];
  count.store(count.load(std::memory_order_relaxed) + static_cast<uint32_t>(times),
              std::memory_order_relaxed);
  all.sum_us.store(all.sum_us.load(std::memory_order_relaxed) + us * times,
                   std::memory_order_relaxed);
}

// --- recognised ---------------------------------------------------------------------------------

// REQUIRES: lock_ is held; the recogniser has just seen a launch that begins an iteration.
bool Progress::begin_recognised(uint64_t stream) {
  const bool is_trusted = recogniser_.is_trusted();
  // As long as nothing is recognised, there is nothing new to publish.
  if (!is_trusted && now_.source == ShimSource::kNone) return false;
  bool has_waited = false;
  if (is_trusted) {
    has_waited = pass_boundary();
    now_.began_ns = monotonic_ns();
    if (has_waited) recogniser_.held(stream, now_.began_ns);
    ++now_.begun;
  }
  // Another thread may have announced one while this one waited.
  if (is_guessing()) take_recognised();
  now_.skipped = skipped_.load(std::memory_order_relaxed);
  publish(slot().iterations, now_);
  return has_waited;
}

void Progress::take_recognised() {
  const IterationReport report = recogniser_.report();
  const bool is_trusted = recogniser_.is_trusted();
  // One, but for those of before the recogniser was sure.
  if (report.ended > now_.ended && report.period_sum_ns >= now_.latency_ns) {
    const uint64_t ended = report.ended - now_.ended;
    count_time((report.period_sum_ns - now_.latency_ns) / ended, ended);
  }
  now_.source = is_trusted ? ShimSource::kRecognised : ShimSource::kNone;
  now_.confidence = static_cast<uint32_t>(report.confidence * 1000);
  now_.phase = is_trusted ? static_cast<ShimPhase>(report.phase) : ShimPhase::kUnknown;
  now_.period_ns = is_trusted ? report.mean_ns : 0;
  now_.p99_ns = is_trusted ? report.p99_ns : 0;
  now_.launches = is_trusted ? static_cast<uint64_t>(report.launches * 1000) : 0;
  now_.ended = report.ended;
  now_.busy_ns = report.busy_sum_ns;
  now_.latency_ns = report.period_sum_ns;
}

}  // namespace gpushare::shim
