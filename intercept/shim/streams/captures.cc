// SPDX-License-Identifier: Apache-2.0
// Streams that capture a graph: where they do it, that nothing moves meanwhile, and which calls
// CUDA forbids until they end where the driver, which sees stand-ins, does not. On the thread of
// the call.
#include <sched.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

// Nothing waits for a stream that captures, as nothing of it runs.
bool Streams::is_capturing(const Stream& stream) const {
  if (captures_.load(std::memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status{};
  return driver_->cuStreamIsCapturing(stream.physical(), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Place Streams::capture_place(const Device& device) const {
  const uint32_t there = device.captures_at.load(std::memory_order_relaxed);
  if (there == 0 || unknown_.load(std::memory_order_relaxed) != 0) return target_of(device);
  return static_cast<Place>(there - 1);
}

// All streams that are used go, as they may join the capture later; but not other threads' own
// default streams, which this thread cannot name. One that is not used yet goes when it joins: to
// make many stand-ins now, one of which the driver may let wait for what runs (rest.cc), is for
// nothing where a program has streams that it never uses. All graphs of a process are captured in
// the partition of the first one, because the driver updates a graph only by one from the same
// partition.
void Streams::before_capture(Stream& stream) {
  Device& device = *stream.device;
  const Inside inside;
  const AllowedInCaptures allowed(*driver_);
  const auto bring = [&](Stream& each) {
    if (each.place.load(std::memory_order_relaxed) != capture_place(device)) move(each, true);
  };
  if (captures_.load(std::memory_order_relaxed) != 0) {
    // Another thread captures: this stream alone goes where that one did, unless it is in a
    // capture.
    if (!is_capturing(stream)) bring(stream);
    return;
  }
  if (device.captures_at.load(std::memory_order_relaxed) == 0) {
    if (is_wanted_new(device)) follow_wanted(device);
    uint32_t nowhere = 0;
    device.captures_at.compare_exchange_strong(nowhere, 1u + target_of(device));
  }
  bring(stream);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device && each->is_used.load(std::memory_order_relaxed) &&
        each->at[0].load(std::memory_order_relaxed) != GS_CU_STREAM_PER_THREAD)
      bring(*each);
}

CUcontext Streams::context_for_condition(CUcontext given) {
  const KeepErrno errno_of_the_program;
  const Inside inside;
  Device* const device = device_in(given);
  if (device == nullptr) return given;
  if (captures_.load(std::memory_order_relaxed) == 0) {
    device->captures_at.store(1, std::memory_order_relaxed);
    return given;
  }
  const Place place = capture_place(*device);
  CUcontext const there = place == 0 ? nullptr : context_of(*device, place);
  return there == nullptr ? given : there;
}

void Streams::note_recorded(const Stream* stream, CUevent event) {
  if (stream != nullptr && !is_capturing(*stream)) return;
  const KeepErrno errno_of_the_program;
  const uint32_t number = captured_count_.fetch_add(1, std::memory_order_acq_rel);
  captured_events_[number % kMostCapturedEvents].store(event, std::memory_order_release);
}

bool Streams::may_be_captured(CUevent event) const {
  const uint32_t since = captured_since_.load(std::memory_order_acquire);
  const uint32_t count = captured_count_.load(std::memory_order_acquire);
  if (count - since > kMostCapturedEvents) return true;
  for (uint32_t i = since; i != count; ++i)
    if (captured_events_[i % kMostCapturedEvents].load(std::memory_order_acquire) == event)
      return true;
  return false;
}

// Another thread may use it in the moment in which it is to go, and the driver may refuse to make a
// stand-in for it.
void Streams::before_joining(Stream& stream, CUevent event) {
  constexpr int kMostTries = 1000, kMostWithoutStandIn = 10;
  if (stream.kind.load(std::memory_order_relaxed) == Stream::Kind::kLegacy ||
      !may_be_captured(event))
    return;
  const Inside inside;
  const AllowedInCaptures allowed(*driver_);
  int without_stand_in = 0;
  for (int tries = 0; tries < kMostTries && !is_at_captures(stream) && !is_capturing(stream);
       ++tries) {
    if (tries != 0) ::sched_yield();
    move(stream, true);
    if (stream.at[capture_place(*stream.device)].load(std::memory_order_relaxed) == nullptr &&
        ++without_stand_in == kMostWithoutStandIn)
      break;
  }
  note_captured(stream);
}

// A graph may get kernels of the place where the stream is, which it keeps while any captures, or
// else goes to where the process captures.
void Streams::note_captured(const Stream& stream) {
  const Place place = stream.place.load(std::memory_order_acquire);
  if (place != 0) stream.device->captured.fetch_or(1u << place, std::memory_order_relaxed);
}

void Streams::count_capture() {
  // Before it is counted, so that no event of another capture that begins now is left out.
  const uint32_t count = captured_count_.load(std::memory_order_acquire);
  if (captures_.fetch_add(1, std::memory_order_seq_cst) == 0)
    captured_since_.store(count, std::memory_order_release);
}

void Streams::begin_capture(Stream& stream) {
  note_captured(stream);
  if (!stream.began_capture.exchange(true, std::memory_order_relaxed)) count_capture();
}

void Streams::end_capture(Stream& stream) {
  CUstreamCaptureStatus status{};
  driver_->cuStreamIsCapturing(stream.physical(), &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE &&
      stream.began_capture.exchange(false, std::memory_order_relaxed) &&
      captures_.fetch_sub(1, std::memory_order_relaxed) == 1)
    after_captures();
}

// A library was bound deeply while something was captured, and nothing could move.
void Streams::after_captures() {
  if (unknown_.load(std::memory_order_relaxed) < kForGood) return;
  const KeepErrno errno_of_the_program;
  const Inside inside;
  bring_all_home();
}

// One whose context has ended while it captured may be there still. Threads' own streams have the
// same handle.
void Streams::begin_capture(CUstream unknown) {
  if (unknown != GS_CU_STREAM_PER_THREAD) forget_unknown_capture(unknown);
  for (auto& each : unknown_captures_) {
    CUstream none = nullptr;
    if (!each.compare_exchange_strong(none, unknown, std::memory_order_relaxed)) continue;
    count_capture();
    return;
  }
}

void Streams::end_capture(CUstream unknown) {
  CUstreamCaptureStatus status{};
  for (const auto& each : unknown_captures_)
    if (each.load(std::memory_order_relaxed) == unknown) {
      driver_->cuStreamIsCapturing(unknown, &status);
      if (status == CU_STREAM_CAPTURE_STATUS_NONE) forget_unknown_capture(unknown);
      return;
    }
}

// Returns false if there is none of that stream.
bool Streams::forget_unknown_capture(CUstream stream) {
  for (auto& each : unknown_captures_) {
    CUstream there = stream;
    if (!each.compare_exchange_strong(there, nullptr, std::memory_order_relaxed)) continue;
    captures_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

// The contexts of such streams have ended.
void Streams::forget_unknown_captures() {
  for (const auto& each : unknown_captures_)
    while (CUstream there = each.load(std::memory_order_relaxed))
      if (!forget_unknown_capture(there)) break;
}

CUresult Streams::refusal_of(const Stream& legacy, bool ends_captures) {
  if (captures_.load(std::memory_order_relaxed) == 0 ||
      legacy.kind.load(std::memory_order_relaxed) != Stream::Kind::kLegacy)
    return CUDA_SUCCESS;
  return is_any_refused(*legacy.device, true, ends_captures) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                             : CUDA_SUCCESS;
}

CUresult Streams::refusal_of_wait(CUcontext context) {
  if (captures_.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  end_left_captures();
  const Device* device = device_in(context);
  return device != nullptr && is_any_refused(*device, false, true)
             ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
             : CUDA_SUCCESS;
}

// Returns true if a stream captures that the call concerns.
bool Streams::is_any_refused(const Device& device, bool is_only_of_blocking, bool ends_captures) {
  const KeepErrno errno_of_the_program;
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  bool is_any = false;
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (each->device != &device) continue;
    const Look look(*each);
    const Stream::Kind kind = look.kind();
    if (kind == Stream::Kind::kNone || (is_only_of_blocking && kind != Stream::Kind::kBlocking) ||
        !is_capturing(*each))
      continue;
    // The query is refused, and makes the capture invalid.
    if (ends_captures) driver_->cuStreamQuery(each->physical());
    is_any = true;
  }
  return is_any;
}

}  // namespace gpushare::shim
