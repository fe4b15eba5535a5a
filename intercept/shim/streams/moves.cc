// SPDX-License-Identifier: Apache-2.0
// Moves: a launch finds that the agent wants another partition, makes it if need be, and takes its
// stream there. An event is recorded at the old place and the new place waits for it: nothing is
// drained or cut, and the stream remains one queue. On the launching thread; a partition is made
// under the device's lock, a stream moves while its `users` is kMoving.
#include <unistd.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

void Streams::follow_wanted(Device& device) {
  const KeepErrno errno_of_the_program;
  uint64_t begin_ns = 0;
  while (!try_to_follow(device, begin_ns)) ::usleep(kRestPollUs);
}

void Streams::say(const Device& device, ShimFollows follows) const {
  auto& said = slot().gpus[device.gpu].follows;
  if (said.load(std::memory_order_relaxed) != follows)
    said.store(follows, std::memory_order_relaxed);
}

// Returns false if the launch is to wait for rest and try again. `begin_ns` is when that wait
// began; 0: it has not.
bool Streams::try_to_follow(Device& device, uint64_t& begin_ns) {
  const Locked locked(device.lock);
  const bool is_new = is_wanted_new(device);
  if (!(is_new || device.lacks.load(std::memory_order_relaxed)) ||
      device.primary.load(std::memory_order_relaxed) == nullptr)
    return true;
  ShimGpu& gpu = slot().gpus[device.gpu];
  const uint64_t wanted = gpu.wanted.load(std::memory_order_relaxed);
  int place =
      is_new ? device.partitions.find(wanted) : device.target.load(std::memory_order_relaxed);
  if (place == Partitions::kNone || !has_stand_ins(device, static_cast<Place>(place))) {
    if (place == Partitions::kNone && device.partitions.is_full() && !make_room(device)) {
      say(device, ShimFollows::kNoRoom);
      return true;  // a later launch tries again
    }
    if (other_contexts_.load(std::memory_order_relaxed) > 0) {
      say(device, ShimFollows::kOwnContexts);
      return true;
    }
    const uint64_t now = monotonic_ns();
    if (now < device.rest_after_ns) {
      say(device, ShimFollows::kPauses);
      return true;
    }
    if (!hold_at_rest(device)) {
      say(device, ShimFollows::kWaitsForRest);
      return !may_wait_for_rest(device, now, begin_ns);
    }
    if (place == Partitions::kNone)
      place = device.partitions.make(*driver_, device.ordinal, wanted);
    make_left(device);
    const bool is_complete = place <= 0 || make_stand_ins(device, static_cast<Place>(place));
    let_go(device);
    device.rest_waited_ns = device.rest_pause_ns = 0;
    if (!is_complete) device.rest_after_ns = now + kFirstRestPauseNs;
  }
  device.lacks.store(false, std::memory_order_relaxed);
  say(device, place < 0 ? ShimFollows::kRefused : ShimFollows::kFollows);
  if (!is_new) return true;
  // A partition that the driver refuses is not tried again at each launch.
  device.followed.store(wanted, std::memory_order_relaxed);
  if (place < 0) return true;
  device.target.store(static_cast<Place>(place), std::memory_order_relaxed);
  gpu.applied.store(wanted, std::memory_order_release);
  return true;
}

// Counts a stream that has moved; that it leaves home was counted in `away` before: see end_use().
void Streams::count_move(Device& device, Place from, Place to) {
  if (from != 0) device.inhabitants[from].fetch_sub(1, std::memory_order_release);
  if (to == 0) {
    device.away.fetch_sub(1, std::memory_order_relaxed);
  } else {
    device.inhabitants[to].fetch_add(1, std::memory_order_relaxed);
  }
}

// Makes what is put into `to` from now on run after what is in `from`. False: the driver refused.
bool Streams::chain(Stream& stream, CUstream from, CUstream to) {
  const InContext in(*driver_, stream.device->primary.load(std::memory_order_relaxed));
  if (!in.is_there()) return false;
  const Locked locked(stream.event_lock);
  if (stream.event == nullptr &&
      driver_->cuEventCreate(&stream.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  return driver_->cuEventRecord(stream.event, from) == CUDA_SUCCESS &&
         driver_->cuStreamWaitEvent(to, stream.event, 0) == CUDA_SUCCESS;
}

bool Streams::make_stand_in(Stream& stream, Place place) {
  if (stream.at[place].load(std::memory_order_relaxed) != nullptr) return true;
  int priority = 0;
  const CUstream home = stream.at[0].load(std::memory_order_relaxed);
  driver_->cuStreamGetPriority(home, &priority);
  CUstream made = nullptr;
  if (driver_->cuGreenCtxStreamCreate(&made, stream.device->partitions.green(place),
                                      CU_STREAM_NON_BLOCKING, priority) != CUDA_SUCCESS)
    return false;
  driver_->cuStreamCopyAttributes(made, home);
  stream.at[place].store(made, std::memory_order_release);
  return true;
}

void Streams::move_to_target(Stream& stream) {
  Device& device = *stream.device;
  const bool may_make = captures_.load(std::memory_order_relaxed) == 0;
  if (__builtin_expect(is_wanted_new(device) || device.lacks.load(std::memory_order_relaxed), 0) &&
      may_make)
    follow_wanted(device);
  const Place place = stream.place.load(std::memory_order_relaxed);
  if (__builtin_expect(place == target_of(device) || !may_make, 1)) return;
  move(stream, false);
}

void Streams::move(Stream& stream, bool to_capture) {
  Device& device = *stream.device;
  uint32_t nobody = 0;
  if (!stream.users.compare_exchange_strong(nobody, Stream::kMoving, std::memory_order_seq_cst))
    return;
  const KeepErrno errno_of_the_program;
  const Place place = stream.place.load(std::memory_order_relaxed);
  // While a stream is moving no partition is dropped, so the target stays.
  const Place target = to_capture ? capture_place(device) : target_of(device);
  const bool has_ended = stream.kind.load(std::memory_order_seq_cst) == Stream::Kind::kNone;
  // A stream without a stand-in in the target stays where it is until one can be made. For a
  // capture it must be there, so its stand-in is made at once.
  const bool is_prepared = target == 0 ||
                           stream.at[target].load(std::memory_order_relaxed) != nullptr ||
                           (to_capture && !has_ended && make_stand_in(stream, target));
  if (!is_prepared && !has_ended) device.lacks.store(true, std::memory_order_relaxed);
  if (!has_ended && place != target && is_prepared) {
    if (place == 0) device.away.fetch_add(1, std::memory_order_seq_cst);
    if (chain(stream, stream.at[place].load(std::memory_order_relaxed),
              stream.at[target].load(std::memory_order_relaxed))) {
      stream.place.store(target, std::memory_order_release);
      count_move(device, place, target);
      if (device.gpu >= 0) slot().gpus[device.gpu].moves.fetch_add(1, std::memory_order_relaxed);
    } else if (place == 0) {
      device.away.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  // Not a store of 0: other threads may have added themselves, and are about to see kMoving.
  stream.users.fetch_sub(Stream::kMoving, std::memory_order_release);
}

}  // namespace gpushare::shim
