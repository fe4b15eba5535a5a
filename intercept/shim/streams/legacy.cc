// SPDX-License-Identifier: Apache-2.0
// Streams: the order of the legacy default stream, and what captures forbid, where the driver does
// not see to it.
#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

// Of one that captures nothing runs, so nothing waits.
bool Streams::is_capturing(const Stream& stream) const {
  if (captures_.load(std::memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status{};
  return driver_->cuStreamIsCapturing(stream.physical(), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void Streams::order_with_legacy(Stream& stream, Use use) {
  const Stream::Kind kind = stream.kind.load(std::memory_order_relaxed);
  Device& device = *stream.device;
  if (kind == Stream::Kind::kLegacy) {
    if (device.away.load(std::memory_order_relaxed) != 0) gather(stream);
    return;
  }
  if (kind == Stream::Kind::kNonBlocking || use == Use::kWait) return;
  const uint64_t operations = device.legacy.legacy_operations.load(std::memory_order_acquire);
  if (stream.legacy_operations.load(std::memory_order_acquire) == operations) return;
  const bool is_legacy_home = device.legacy.place.load(std::memory_order_relaxed) == 0;
  const bool is_at_home = stream.place.load(std::memory_order_relaxed) == 0;
  if (!(is_legacy_home && is_at_home) && !is_capturing(stream)) {
    const KeepErrno errno_of_the_program;
    // An event in the legacy stream's home would be behind all blocking streams there, and this
    // stream need not be. One in its own home is behind the legacy stream alone.
    chain(stream,
          is_legacy_home ? stream.at[0].load(std::memory_order_relaxed) : device.legacy.physical(),
          stream.physical());
  }
  // Only now: another thread that uses the stream must not go before.
  stream.legacy_operations.store(operations, std::memory_order_release);
}

// REQUIRES: some stream of the device is away.
void Streams::gather(Stream& legacy) {
  const KeepErrno errno_of_the_program;
  Device& device = *legacy.device;
  // Another operation that finds a stream no longer dirty must not go before this one has waited.
  const Locked locked(device.gathering);
  const bool is_legacy_home = legacy.place.load(std::memory_order_relaxed) == 0;
  const CUstream here = legacy.physical();
  bool is_home_dirty = device.has_left_work.exchange(false, std::memory_order_relaxed);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (each->device != &device) continue;
    const Look look(*each);
    if (look.kind() != Stream::Kind::kBlocking || is_capturing(*each) ||
        !each->is_dirty.exchange(false, std::memory_order_acquire))
      continue;
    if (each->place.load(std::memory_order_acquire) == 0)
      is_home_dirty = true;
    else
      chain(legacy, each->physical(), here);
  }
  // The driver's own legacy stream stands for all that are at home, also for other threads' own. Of
  // each the work is before the event that was there when it was found dirty: so only now.
  if (is_home_dirty && !is_legacy_home) chain(legacy, GS_CU_STREAM_LEGACY, here);
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
  const Device* device = context == nullptr ? current_device() : device_of(context);
  return device != nullptr && is_any_refused(*device, false, true)
             ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
             : CUDA_SUCCESS;
}

// Whether a stream captures that the call has to do with.
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
    // It is refused, and makes the capture invalid.
    if (ends_captures) driver_->cuStreamQuery(each->physical());
    is_any = true;
  }
  return is_any;
}

void Streams::home_waits(Stream& stream) {
  const KeepErrno errno_of_the_program;
  chain(stream, stream.physical(), stream.at[0].load(std::memory_order_relaxed));
}

void Streams::waits_for_home(Stream& stream) {
  const KeepErrno errno_of_the_program;
  chain(stream, stream.at[0].load(std::memory_order_relaxed), stream.physical());
}

}  // namespace gpushare::shim
