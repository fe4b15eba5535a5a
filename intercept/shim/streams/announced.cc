// SPDX-License-Identifier: Apache-2.0
// Partitions that the agent has announced (ShimSoon) are made before they are wanted, when the
// program itself has waited and nothing of it runs, so that no launch waits for them. One is made
// at a time, in 1 ms; a thread that launches in that moment waits as long. Whatever is in the way
// (captures, contexts of the program's own, work of other threads) leaves it for the next wait. On
// the thread that has waited, under the device's lock if no thread holds it.
#include "intercept/shim/driver/bypass.h"
#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

// Returns true if there is nothing to make for this partition. REQUIRES: device.lock is held.
bool Streams::is_prepared(Device& device, uint64_t set) {
  const int place = device.partitions.find(set);
  if (place == Partitions::kNone) return device.partitions.count() >= kMostWithAnnounced;
  return has_stand_ins(device, static_cast<Place>(place));
}

void Streams::make_announced(Device& device) {
  const KeepErrno errno_of_the_program;
  const TryLocked locked(device.lock);
  if (!locked.is_held() || device.primary.load(std::memory_order_relaxed) == nullptr ||
      captures_.load(std::memory_order_relaxed) != 0 ||
      other_contexts_.load(std::memory_order_relaxed) > 0 || is_driver_newer_ ||
      is_driver_bypassed.load(std::memory_order_relaxed))
    return;
  const int gpu = device.gpu;  // once: see is_announced_new()
  const uint64_t now = monotonic_ns();
  if (gpu < 0 || now < device.soon_after_ns) return;
  const AllowedInCaptures allowed(*driver_);
  if (++device.soon_tries == kSoonTries) {
    device.soon_tries = 0;
    device.soon_after_ns = now + kSoonPauseNs;
  }
  for (uint32_t i = 0; i < kShimSoon; ++i) {
    const uint64_t set = slot().soon[gpu].sets[i].load(std::memory_order_relaxed);
    if (set == device.prepared[i].load(std::memory_order_relaxed)) continue;
    const bool is_to_be_made = !is_prepared(device, set);
    if (is_to_be_made && !hold_at_rest(device)) return;
    device.soon_tries = 0;
    // A partition that the driver refuses is not tried again.
    device.prepared[i].store(set, std::memory_order_relaxed);
    if (!is_to_be_made) continue;
    int place = device.partitions.find(set);
    if (place == Partitions::kNone) place = device.partitions.make(*driver_, device.ordinal, set);
    make_left(device);
    if (place > 0) make_stand_ins(device, static_cast<Place>(place));
    let_go(device);
    return;
  }
}

// A new stream lacks its stand-ins in all of them.
void Streams::forget_prepared(Device& device) {
  for (auto& set : device.prepared) set.store(0, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
