// SPDX-License-Identifier: Apache-2.0
// Streams: when nothing of the process runs on a device.
#include <algorithm>

#include "intercept/shim/in_context.h"
#include "intercept/shim/streams.h"

namespace gpushare::shim {

// REQUIRES: the stream is held, and nothing captures. What its other places still do it waits for.
bool Streams::is_at_rest(const Device& device, const Stream& stream) const {
  const CUstream there = stream.physical();
  // Another thread's own default stream at home cannot be asked for.
  const bool is_named =
      there != GS_CU_STREAM_PER_THREAD || own_streams.of_device[device.ordinal] == &stream;
  return is_named && driver_->cuStreamQuery(there) == CUDA_SUCCESS;
}

// True: nothing runs, and nobody puts anything into a stream until let_go().
bool Streams::hold_at_rest(Device& device) {
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  if (!in.is_there() ||
      (device.left != nullptr && driver_->cuStreamQuery(device.left) != CUDA_SUCCESS))
    return false;
  bool is_at_rest_now = true;
  const auto hold = [&](Stream& stream) {
    uint32_t nobody = 0;
    stream.is_held =
        stream.users.compare_exchange_strong(nobody, Stream::kMoving, std::memory_order_seq_cst);
    is_at_rest_now = stream.is_held && captures_.load(std::memory_order_seq_cst) == 0 &&
                     is_at_rest(device, stream);
  };
  hold(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); is_at_rest_now && each != nullptr;
       each = each->next)
    if (each->device == &device &&
        each->kind.load(std::memory_order_acquire) != Stream::Kind::kNone)
      hold(*each);
  if (!is_at_rest_now) let_go(device);
  return is_at_rest_now;
}

void Streams::let_go(Device& device) {
  const auto release = [](Stream& stream) {
    if (!stream.is_held) return;
    stream.is_held = false;
    stream.users.fetch_sub(Stream::kMoving, std::memory_order_release);
  };
  release(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device) release(*each);
}

// False: this launch has waited long enough, or all of them have for now.
bool Streams::may_wait_for_rest(Device& device, uint64_t now, uint64_t& begin_ns) {
  if (begin_ns == 0) begin_ns = now;
  const uint64_t waited = now - begin_ns;
  if (waited < kLongestRestNs) return true;
  device.rest_waited_ns += waited;
  if (device.rest_waited_ns >= kMostRestNs) {
    device.rest_pause_ns =
        std::clamp(2 * device.rest_pause_ns, kFirstRestPauseNs, kLongestRestPauseNs);
    device.rest_waited_ns = 0;
    device.rest_after_ns = now + device.rest_pause_ns;
  }
  return false;
}

// The stream is about to be destroyed: its work goes on, and can no longer be asked for.
void Streams::note_left_work(Stream& stream) {
  Device& device = *stream.device;
  if (captures_.load(std::memory_order_relaxed) != 0 ||
      driver_->cuStreamQuery(stream.physical()) == CUDA_SUCCESS)
    return;
  const Locked locked(device.lock);
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  if (!in.is_there() ||
      (device.left == nullptr &&
       driver_->cuStreamCreate(&device.left, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS))
    return;
  chain(stream, stream.physical(), device.left);
}

}  // namespace gpushare::shim
