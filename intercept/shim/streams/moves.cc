// SPDX-License-Identifier: Apache-2.0
// Moves: a launch finds that the agent wants another partition, makes it if need be, and takes its
// stream and all others there. A move records an event at the old place, and the new place waits
// for it: nothing is cut, and the stream remains one queue. Where the partition must be made first,
// launches are held until the work in line has ended (drain.h), and then all streams change places
// at once. `applied` is said when nothing of the process runs at another place. On the launching or
// waiting thread; a partition is made under the device's lock, a stream moves while its `users` is
// kMoving.
#include <algorithm>

#include "intercept/shim/driver/bypass.h"
#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/sleep.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

void Streams::set_concern(Device& device, Concern concern, bool is_one) {
  if (((device.concerns.load(std::memory_order_relaxed) & concern) != 0) == is_one) return;
  if (is_one)
    device.concerns.fetch_or(concern, std::memory_order_relaxed);
  else
    device.concerns.fetch_and(~uint32_t{concern}, std::memory_order_relaxed);
}

void Streams::say(const Device& device, ShimFollows follows) const {
  const int gpu = device.gpu;  // once: see is_announced_new()
  if (gpu < 0) return;
  auto& said = slot().gpus[gpu].follows;
  if (said.load(std::memory_order_relaxed) != follows)
    said.store(follows, std::memory_order_relaxed);
}

// --- what is wanted -----------------------------------------------------------------------------

void Streams::follow_wanted(Device& device) {
  const KeepErrno errno_of_the_program;
  uint64_t wait_ns = try_to_follow(device, true);
  if (wait_ns == 0) return;
  // The agent sees that it waits for its work; otherwise it would take it for idle.
  ShimSlot& mine = slot();
  mine.waits.fetch_add(1, std::memory_order_relaxed);
  for (; wait_ns != 0; wait_ns = try_to_follow(device, true)) sleep_ns(wait_ns);
  mine.waits.fetch_sub(1, std::memory_order_relaxed);
}

// What keeps a partition, or a stand-in at `place`, from being made now; kFollows: nothing.
// REQUIRES: device.lock is held.
ShimFollows Streams::hindrance(Device& device, const Drain& drain, int place, uint64_t now) {
  if (is_driver_newer_) return ShimFollows::kNewerDriver;
  if (is_driver_bypassed.load(std::memory_order_relaxed)) return ShimFollows::kBypassed;
  if (other_contexts_.load(std::memory_order_relaxed) > 0) return ShimFollows::kOwnContexts;
  if (drain.is_pausing(now)) return ShimFollows::kPauses;
  if (place == Partitions::kNone && device.partitions.is_full() && !make_room(device))
    return ShimFollows::kNoRoom;
  return ShimFollows::kFollows;
}

// REQUIRES: device.lock is held.
void Streams::note_hindered(Device& device, uint64_t now) const {
  const int gpu = device.gpu;  // once: see is_announced_new()
  if (gpu < 0) return;
  device.hindered_wanted.store(slot().gpus[gpu].wanted.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
  device.hindered_contexts.store(other_contexts_.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
  device.hindered_until_ns.store(now + kHinderedNs, std::memory_order_relaxed);
}

// On any thread. Who reads some of it from before and some from after a change of it tries a
// millisecond too late, or once too often.
bool Streams::is_hindered(const Device& device) const {
  const uint64_t until = device.hindered_until_ns.load(std::memory_order_relaxed);
  const int gpu = device.gpu;  // once: see is_announced_new()
  return until != 0 && gpu >= 0 &&
         slot().gpus[gpu].wanted.load(std::memory_order_relaxed) ==
             device.hindered_wanted.load(std::memory_order_relaxed) &&
         other_contexts_.load(std::memory_order_relaxed) ==
             device.hindered_contexts.load(std::memory_order_relaxed) &&
         monotonic_ns() < until;
}

// Returns 0 if the launch may go on, and otherwise after how many ns it is to try again.
// `may_hold`: it is a launch, which may be held until the queue is empty.
uint64_t Streams::try_to_follow(Device& device, bool may_hold) {
  const Locked locked(device.lock);
  const bool is_new = is_wanted_new(device);
  if (!(is_new || has_concern(device, kStreamLacks)) ||
      device.primary.load(std::memory_order_relaxed) == nullptr)
    return 0;
  const AllowedInCaptures allowed(*driver_);
  const uint64_t wanted = is_new ? slot().gpus[device.gpu].wanted.load(std::memory_order_relaxed)
                                 : device.followed.load(std::memory_order_relaxed);
  int place =
      is_new ? device.partitions.find(wanted) : device.target.load(std::memory_order_relaxed);
  // Streams that have no stand-in there follow one by one, when they launch.
  const bool is_to_be_made =
      place == Partitions::kNone || (!is_new && !has_stand_ins(device, static_cast<Place>(place)));
  // Streams that only lack a stand-in may never see a rest, beside others that are there and fill
  // theirs. That keeps no partition from being made.
  Drain& drain = is_new ? device.drain : device.lacking;
  if (is_to_be_made) {
    const uint64_t now = monotonic_ns();
    if (const ShimFollows why = hindrance(device, drain, place, now);
        why != ShimFollows::kFollows) {
      note_hindered(device, now);
      say(device, why);
      return 0;  // a later launch tries again
    }
    if (!hold_at_rest(device)) {
      say(device, ShimFollows::kWaitsForRest);
      // While another thread captures nothing can be made, and a wait for that would be in vain.
      if (!may_hold || captures_.load(std::memory_order_seq_cst) != 0) return 0;
      const uint32_t left = count_busy(device) + device.milestones.count_left(*driver_);
      if (drain.may_hold(now, left, device.milestones.interval_ns()))
        return std::clamp(drain.held_ns(now) / kPollParts, kShortestPollNs, kLongestPollNs);
      say(device, ShimFollows::kPauses);
      return 0;
    }
    if (place == Partitions::kNone)
      place = device.partitions.make(*driver_, device.ordinal, wanted);
    make_left(device);
    const bool is_complete = place <= 0 || make_stand_ins(device, static_cast<Place>(place));
    if (place >= 0) {
      device.target.store(static_cast<Place>(place), std::memory_order_relaxed);
      put_held(device, target_of(device));
    }
    let_go(device);
    if (!is_complete) drain.pause(now);
    drain.end(is_complete);
  } else {
    drain.end(false);
  }
  device.hindered_until_ns.store(0, std::memory_order_relaxed);
  set_concern(device, kStreamLacks, false);
  // A partition that the driver refuses is not tried again at each launch.
  device.followed.store(wanted, std::memory_order_relaxed);
  if (place >= 0) device.target.store(static_cast<Place>(place), std::memory_order_relaxed);
  if (place < 0) say(device, ShimFollows::kRefused);
  settle(device);
  return 0;
}

// Takes the empty streams to the target, and says `applied` when nothing runs elsewhere. REQUIRES:
// device.lock is held, and followed is what the agent wants.
void Streams::settle(Device& device) {
  device.next_settle_ns = monotonic_ns() + kSettleNs;
  const Place target = target_of(device);
  const uint64_t followed = device.followed.load(std::memory_order_relaxed);
  bool is_late = false;
  for_each_used(device, [&](Stream& stream) {
    bring(stream, target);
    is_late |= is_left_behind(stream, target);
  });
  // Streams that have ended: after the look at those that have not.
  is_late |= device.ending.load(std::memory_order_acquire) != 0;
  for (int i = 0; i <= Partitions::kMost; ++i)
    is_late |= i != target && may_run_left(device, static_cast<Place>(i));
  const bool is_refused = device.partitions.find(followed) != target;
  set_concern(device, kStreamLate, is_late);
  set_concern(device, kAtHome, target == 0 && followed != 0);
  if (unknown_.load(std::memory_order_relaxed) != 0 && followed != 0) {
    if (device.gpu >= 0) slot().gpus[device.gpu].applied.store(0, std::memory_order_relaxed);
    say(device, is_driver_bypassed.load(std::memory_order_relaxed) ? ShimFollows::kBypassed
                                                                   : ShimFollows::kTooManyStreams);
  }
  if (is_refused) return;
  say(device, is_late ? ShimFollows::kWorkRemains : ShimFollows::kFollows);
  const int gpu = device.gpu;
  if (is_late || gpu < 0) return;
  slot().gpus[gpu].applied.store(followed, std::memory_order_release);
}

// Moves a stream that is empty and not in use. One with work moves with its next launch: an event
// in line would be seen by a program that asks whether the stream is empty.
void Streams::bring(Stream& stream, Place target) {
  if (stream.place.load(std::memory_order_relaxed) == target) return;
  const Alone alone(stream);
  if (alone.is_alone() && alone.kind() != Stream::Kind::kNone &&
      captures_.load(std::memory_order_seq_cst) == 0 && is_at_rest(stream)) {
    adopt(stream, target);
    put(stream, target);
  }
}

// Returns true if work of the stream may run elsewhere than in the target.
bool Streams::is_left_behind(Stream& stream, Place target) {
  if (stream.place.load(std::memory_order_acquire) != target) {
    const Alone alone(stream);
    return !alone.is_alone() ||
           (alone.kind() != Stream::Kind::kNone &&
            (captures_.load(std::memory_order_seq_cst) != 0 || !is_at_rest(stream)));
  }
  return is_leaving(stream);
}

bool Streams::is_leaving(Stream& stream) const {
  const Look look(stream);
  if (look.kind() == Stream::Kind::kNone) return false;
  if (!stream.is_leaving.load(std::memory_order_acquire)) return false;
  const Locked locked(stream.event_lock);
  if (driver_->cuEventQuery(stream.departure) == CUDA_ERROR_NOT_READY) return true;
  stream.is_leaving.store(false, std::memory_order_relaxed);
  return false;
}

bool Streams::is_elsewhere(const Stream& stream) const {
  return stream.place.load(std::memory_order_relaxed) != target_of(*stream.device);
}

// --- a launch, a wait ---------------------------------------------------------------------------

void Streams::before_launch(Stream& stream) {
  Device& device = *stream.device;
  if (__builtin_expect(captures_.load(std::memory_order_relaxed) == 0, 1)) {
    const bool may_follow = !is_hindered(device);
    if (is_wanted_new(device)) {
      if (may_follow) follow_wanted(device);
    } else if (has_concern(device, kStreamLate)) {
      settle_in_time(device);
    }
    if (is_elsewhere(stream)) move(stream, false);
    // Its stand-in is to be made at rest, and it was not in use.
    if (may_follow && is_elsewhere(stream) && has_concern(device, kStreamLacks) &&
        stream.at[target_of(device)].load(std::memory_order_relaxed) == nullptr)
      follow_wanted(device);
    // Also while it is told to go elsewhere and cannot: then the next attempt sees its progress.
    if (has_concern(device, kMilestoneDue) || (may_follow && is_wanted_new(device)))
      put_milestone(stream);
  }
  if (stream.place.load(std::memory_order_relaxed) == 0 || is_elsewhere(stream))
    count_at_home(device);
}

// Counts a launch that runs at home, or in a partition from before because the stream has no
// stand-in in the present one yet, if a partition is wanted.
void Streams::count_at_home(const Device& device) const {
  const int gpu = device.gpu;  // once: see is_announced_new()
  if (gpu < 0 || slot().gpus[gpu].wanted.load(std::memory_order_relaxed) == 0) return;
  slot().home_launches[gpu].fetch_add(1, std::memory_order_relaxed);
}

// It is in a context beside the primary ones.
void Streams::count_unknown_launch() {
  CUdevice ordinal = -1;
  if (driver_->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 || ordinal >= kMostDevices)
    return;
  Device& device = devices_[ordinal];
  if (device.primary.load(std::memory_order_acquire) == nullptr) say_own_context(device, ordinal);
  count_at_home(device);
}

// The program has no primary context on that device, so nothing of it is in a partition, whatever
// an earlier one has said.
void Streams::say_own_context(Device& device, CUdevice ordinal) {
  const KeepErrno errno_of_the_program;
  const Locked locked(device.lock);
  if (device.primary.load(std::memory_order_relaxed) != nullptr) return;
  if (device.found_in != &slot()) {
    device.ordinal = ordinal;
    find_in_slot(device);
  }
  const int gpu = device.gpu;
  if (gpu < 0) return;
  if (slot().gpus[gpu].applied.load(std::memory_order_relaxed) != 0)
    slot().gpus[gpu].applied.store(0, std::memory_order_release);
  say(device, ShimFollows::kOwnContexts);
}

void Streams::put_milestone(Stream& stream) {
  Device& device = *stream.device;
  const KeepErrno errno_of_the_program;
  const Look look(stream);  // it stays where it is
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  const AllowedInCaptures allowed(*driver_);
  const bool is_all_there = !is_elsewhere(stream) && !is_wanted_new(device) &&
                            !has_concern(device, kStreamLate | kStreamLacks);
  const auto place =
      is_all_there ? std::optional(device.followed.load(std::memory_order_relaxed)) : std::nullopt;
  // While launches are as far apart as milestones, the next launch looks again.
  if (!in.is_there() ||
      !device.milestones.record(*driver_, stream.physical(), monotonic_ns(), place))
    set_concern(device, kMilestoneDue, false);
  const int gpu = device.gpu;  // once: see is_announced_new()
  if (gpu < 0) return;
  ShimDrain& said = slot().drains[gpu];
  said.place.store(device.milestones.drain_place(), std::memory_order_relaxed);
  said.ns.store(device.milestones.drain_ns(), std::memory_order_relaxed);
}

void Streams::settle_in_time(Device& device) {
  const KeepErrno errno_of_the_program;
  const TryLocked locked(device.lock);
  if (!locked.is_held() || monotonic_ns() < device.next_settle_ns || is_wanted_new(device) ||
      device.primary.load(std::memory_order_relaxed) == nullptr)
    return;
  const AllowedInCaptures allowed(*driver_);
  settle(device);
}

void Streams::look_after_wait() {
  if (Inside::is_any()) return;  // a tool waits while a call of ours holds a lock
  Device* const device = current_device();
  if (device == nullptr || captures_.load(std::memory_order_relaxed) != 0) return;
  const KeepErrno errno_of_the_program;
  const Inside inside;
  if (is_wanted_new(*device) || has_concern(*device, kStreamLacks))
    try_to_follow(*device, false);
  else if (has_concern(*device, kStreamLate))
    settle_in_time(*device);
  if (device->milestones.is_watching()) {
    const AllowedInCaptures allowed(*driver_);
    device->milestones.look_after_wait(*driver_, monotonic_ns());
  }
  if (is_announced_new(*device)) make_announced(*device);
}

void Streams::look_up() {
  const uint32_t gpus = slot().head.gpu_count.load(std::memory_order_relaxed);
  const bool is_new_slot = known_slot_.load(std::memory_order_relaxed) != &slot();
  const bool are_more = known_gpus_.load(std::memory_order_relaxed) != gpus;
  for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;) {
    Device& device = devices_[i];
    if (is_new_slot || (are_more && device.gpu < 0)) {
      const KeepErrno errno_of_the_program;
      const Locked locked(device.lock);
      if (device.primary.load(std::memory_order_relaxed) != nullptr) find_in_slot(device);
    }
    if (device.gpu >= 0) set_concern(device, kMilestoneDue, true);
  }
  if (is_new_slot) known_slot_.store(&slot(), std::memory_order_relaxed);
  if (are_more) known_gpus_.store(gpus, std::memory_order_relaxed);
}

// --- one stream ---------------------------------------------------------------------------------

// Counts a stream that has moved; that it leaves home was counted in `away` before: see end_use().
void Streams::count_move(Device& device, Place from, Place to) {
  if (from != 0) device.inhabitants[from].fetch_sub(1, std::memory_order_release);
  if (to == 0) {
    device.away.fetch_sub(1, std::memory_order_relaxed);
  } else {
    device.inhabitants[to].fetch_add(1, std::memory_order_relaxed);
  }
  const int gpu = device.gpu;  // once: see is_announced_new()
  if (gpu >= 0) slot().gpus[gpu].moves.fetch_add(1, std::memory_order_relaxed);
}

// Makes what is put into `to` from now on run after what is in `from`. False: the driver refused.
bool Streams::chain(Stream& stream, CUstream from, CUstream to) {
  return chain(stream, stream.event, from, to);
}

bool Streams::chain(Stream& stream, CUevent& event, CUstream from, CUstream to) {
  const InContext in(*driver_, stream.device->primary.load(std::memory_order_relaxed));
  if (!in.is_there()) return false;
  const Locked locked(stream.event_lock);
  if (event == nullptr && driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  return driver_->cuEventRecord(event, from) == CUDA_SUCCESS &&
         driver_->cuStreamWaitEvent(to, event, 0) == CUDA_SUCCESS;
}

// REQUIRES: device.lock is held.
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

// Gives the stream a spare one of the place, if it needs one. REQUIRES: device.lock is held, and
// the stream is held for a move.
void Streams::adopt(Stream& stream, Place place) {
  if (place == 0 || stream.at[place].load(std::memory_order_relaxed) != nullptr) return;
  const CUstream home = stream.at[0].load(std::memory_order_relaxed);
  int priority = 0;
  if (driver_->cuStreamGetPriority(home, &priority) != CUDA_SUCCESS || priority != 0) return;
  for (CUstream& spare : stream.device->spares[place]) {
    if (spare == nullptr) continue;
    driver_->cuStreamCopyAttributes(spare, home);
    stream.at[place].store(spare, std::memory_order_release);
    spare = nullptr;
    return;
  }
}

// Moves an empty stream, which has only the legacy stream to wait for: its next use will. REQUIRES:
// it is held for a move, and at rest.
void Streams::put(Stream& stream, Place target) {
  Device& device = *stream.device;
  const Place place = stream.place.load(std::memory_order_relaxed);
  if (place == target || stream.at[target].load(std::memory_order_relaxed) == nullptr) return;
  if (place == 0) device.away.fetch_add(1, std::memory_order_seq_cst);
  if (stream.kind.load(std::memory_order_relaxed) == Stream::Kind::kBlocking) {
    stream.legacy_operations.store(kWaitsForLegacy, std::memory_order_release);
    stream.is_dirty.store(false, std::memory_order_relaxed);
  }
  stream.is_leaving.store(false, std::memory_order_relaxed);
  stream.place.store(target, std::memory_order_release);
  count_move(device, place, target);
}

// Moves the stream behind its work. REQUIRES: it is held for a move.
void Streams::go(Stream& stream, Place target) {
  Device& device = *stream.device;
  const Place place = stream.place.load(std::memory_order_relaxed);
  if (place == target) return;
  const CUstream there = stream.at[target].load(std::memory_order_relaxed);
  // It stays where it is until a stand-in can be made.
  if (there == nullptr) return set_concern(device, kStreamLacks, true);
  if (place == 0) device.away.fetch_add(1, std::memory_order_seq_cst);
  if (chain(stream, stream.departure, stream.at[place].load(std::memory_order_relaxed), there)) {
    const uint32_t before = stream.is_leaving.load(std::memory_order_relaxed)
                                ? stream.was_at.load(std::memory_order_relaxed)
                                : 0;
    stream.was_at.store(before | 1u << place, std::memory_order_relaxed);
    // First: who finds it in its new place asks whether it has left the one before.
    stream.is_leaving.store(true, std::memory_order_release);
    stream.place.store(target, std::memory_order_release);
    set_concern(device, kStreamLate, true);
    count_move(device, place, target);
  } else if (place == 0) {
    device.away.fetch_sub(1, std::memory_order_relaxed);
  }
}

void Streams::move(Stream& stream, bool to_capture) {
  Device& device = *stream.device;
  const Alone alone(stream);
  if (!alone.is_alone()) return;
  const KeepErrno errno_of_the_program;
  // While a stream is moving no partition is dropped, so the target stays.
  const Place target = to_capture ? capture_place(device) : target_of(device);
  if (alone.kind() != Stream::Kind::kNone) {
    if (target != 0 && stream.at[target].load(std::memory_order_relaxed) == nullptr) {
      const Locked locked(device.lock);  // a green context may be used by one thread at a time
      adopt(stream, target);
      // For a capture it must be there, so its stand-in is made at once.
      if (to_capture) make_stand_in(stream, target);
    }
    go(stream, target);
  }
}

}  // namespace gpushare::shim
