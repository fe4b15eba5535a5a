// SPDX-License-Identifier: Apache-2.0
// Which of the partitions that this process has made goes when another one is wanted and there is
// no place left. On a launching thread, under the device's lock.
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

// REQUIRES: device.lock is held.
bool Streams::is_idle(Device& device, Place place) const {
  if (device.inhabitants[place].load(std::memory_order_acquire) != 0 ||
      (device.captured.load(std::memory_order_relaxed) >> place & 1) != 0 ||
      may_run_left(device, place))
    return false;
  for (Stream* each = all_.load(std::memory_order_acquire);; each = each->next) {
    Stream& stream = each == nullptr ? device.legacy : *each;
    if (stream.device == &device) {  // also those that are not used, as a capture may be to come
      const Look look(stream);
      const bool is_moving = (stream.users.load(std::memory_order_acquire) & Stream::kMoving) != 0;
      const CUstream there = stream.at[place].load(std::memory_order_acquire);
      if (is_moving || (look.kind() != Stream::Kind::kNone && there != nullptr &&
                        driver_->cuStreamQuery(there) != CUDA_SUCCESS))
        return false;
    }
    if (each == nullptr) return true;
  }
}

CUcontext Streams::context_of(Device& device, Place place) {
  if (place == 0) return device.primary.load(std::memory_order_relaxed);
  const Locked locked(device.lock);
  return device.partitions.context(place);
}

int Streams::place_of(Device& device, CUcontext context) {
  if (context == device.primary.load(std::memory_order_relaxed)) return 0;
  const Locked locked(device.lock);
  const Place place = device.partitions.place_of(context);
  return place == 0 ? -1 : place;
}

// Drops the partition that has been empty and idle longest, if that is kLeastIdleNs: then no thread
// can still be waiting for what ran there. False: there is none. REQUIRES: device.lock is held, no
// stream captures, all places are taken.
bool Streams::make_room(Device& device) {
  const uint64_t now = monotonic_ns();
  if (now < device.next_try_ns) return false;
  device.next_try_ns = now + kTryAgainNs;
  int oldest = 0;
  for (int i = 1; i <= Partitions::kMost; ++i) {
    uint64_t& since = device.idle_since_ns[i];
    if (i == device.target.load(std::memory_order_relaxed) ||
        !is_idle(device, static_cast<Place>(i))) {
      since = 0;
    } else if (since == 0) {
      since = now;
    } else if (now - since > kLeastIdleNs &&
               (oldest == 0 || since < device.idle_since_ns[oldest])) {
      oldest = i;
    }
  }
  if (oldest == 0 || !lets_go(device, static_cast<Place>(oldest))) return false;
  const auto leave = [&](Stream& stream) {
    if (stream.device != &device) return;
    if (CUstream there = stream.at[oldest].exchange(nullptr, std::memory_order_relaxed))
      driver_->cuStreamDestroy_v2(there);
  };
  leave(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    leave(*each);
  drop_spares(device, static_cast<Place>(oldest));
  device.partitions.drop(*driver_, static_cast<Place>(oldest));
  device.idle_since_ns[oldest] = 0;
  return true;
}

}  // namespace gpushare::shim
