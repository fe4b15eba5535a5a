// SPDX-License-Identifier: Apache-2.0
// The order of the legacy default stream. Among streams at home the driver keeps it; stand-ins it
// does not know, so it is made here with events: an operation of the legacy stream waits for all
// work of blocking streams that it has not waited for yet, and an operation of a blocking stream
// for the legacy work so far. On the thread of the call; `gathering` is held while dirty streams
// are collected, `listing` while one is put on their list or taken off it.
#include <utility>

#include "intercept/shim/link/backoff.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

bool Streams::order_with_legacy(Stream& stream, Use use, bool& has_passed_capture) {
  if (use == Use::kQuestion) return true;
  const Stream::Kind kind = stream.kind.load(std::memory_order_relaxed);
  Device& device = *stream.device;
  if (kind == Stream::Kind::kLegacy) {
    return device.away.load(std::memory_order_relaxed) == 0 ||
           gather(stream, use, has_passed_capture);
  }
  if (kind == Stream::Kind::kNonBlocking || leaves_no_work(use)) return true;
  const uint64_t operations = device.legacy.legacy_operations.load(std::memory_order_acquire);
  if (stream.legacy_operations.load(std::memory_order_acquire) == operations) return true;
  // What it captures waits for nothing, so that what it runs after that still has to.
  if (is_capturing(stream)) return true;
  const bool is_legacy_home = device.legacy.place.load(std::memory_order_relaxed) == 0;
  const bool is_at_home = stream.place.load(std::memory_order_relaxed) == 0;
  if (!(is_legacy_home && is_at_home)) {
    const KeepErrno errno_of_the_program;
    // The event is not behind the thread's own work any more, but behind the legacy work alone.
    if (stream.is_own_at_home()) stream.is_unmarked.store(true, std::memory_order_relaxed);
    // An event in the legacy stream's home would come after the work of all blocking streams there,
    // for which this stream need not wait. An event in its own home comes after the legacy work
    // alone.
    const CUstream legacy = device.legacy.physical();
    put_behind(stream, is_legacy_home ? stream.at[0].load(std::memory_order_relaxed) : legacy,
               stream.physical(), legacy);
  }
  // Only now, so that another thread that uses the stream does not go before the legacy work.
  stream.legacy_operations.store(operations, std::memory_order_release);
  return true;
}

// Under a lock, so that another thread whose work is in the stream finds the flag only when the
// stream is on the list. Its call ends with that, and legacy work that comes next is behind it.
void Streams::note_dirty(Stream& stream) {
  Device& device = *stream.device;
  const Locked locked(device.listing);
  stream.is_dirty.store(true, std::memory_order_relaxed);
  if (stream.is_listed) return;
  stream.is_listed = true;
  stream.next_dirty = device.dirty;
  device.dirty = &stream;
}

// Takes the stream off the list that gather() has taken, and returns the one behind it. From now
// on it may be noted again.
Stream* Streams::take_off_dirty(Device& device, Stream& stream) {
  const Locked locked(device.listing);
  stream.is_listed = false;
  return stream.next_dirty;
}

// Before the entry is that of a stream of another device, whose list it is to be on. Waits for an
// operation of the legacy stream that has taken the list and has not come to this stream yet.
void Streams::leave_dirty_list(Stream& stream) {
  Device& device = *stream.device;
  for (Backoff wait;; wait.pause()) {
    const Locked locked(device.listing);
    if (!stream.is_listed) return;
    Stream** link = &device.dirty;
    while (*link != nullptr && *link != &stream) link = &(*link)->next_dirty;
    if (*link == nullptr) continue;
    *link = stream.next_dirty;
    stream.is_listed = false;
    return;
  }
}

// Makes the legacy stream wait for all dirty streams, in time in proportion to their number.
// REQUIRES: some stream of the device is away. Where the program waits, or asks, what has ended
// must not be put in line for that. For a query nothing is, as the recording of an event may block
// beside another thread's call of the driver; false: something has not ended, and the next
// operation is to wait for it. But while any stream captures, no other is asked, so the query puts
// it in line.
bool Streams::gather(Stream& legacy, Use use, bool& has_passed_capture) {
  const KeepErrno errno_of_the_program;
  Device& device = *legacy.device;
  // The lock keeps another operation, which finds a stream no longer dirty, from going before this
  // one has waited.
  const Locked locked(device.gathering);
  const bool is_legacy_home = legacy.place.load(std::memory_order_relaxed) == 0;
  const CUstream here = legacy.physical();
  const bool is_wait = leaves_no_work(use);
  const bool is_query = use == Use::kQuery && captures_.load(std::memory_order_relaxed) == 0;
  bool is_any_left = false;
  bool is_home_dirty = false;
  Stream* each = nullptr;
  {
    const Locked list(device.listing);
    std::swap(each, device.dirty);
  }
  for (Stream* after = nullptr; each != nullptr; each = after) {
    after = take_off_dirty(device, *each);
    const Look look(*each);
    if (look.kind() != Stream::Kind::kBlocking || !each->is_dirty.load(std::memory_order_relaxed))
      continue;
    // What it captures nobody waits for; and its entry may be that of a stream of another device.
    const bool captures = is_capturing(*each);
    has_passed_capture |= captures;
    if (captures || each->device != &device) {
      note_dirty(*each);
      continue;
    }
    if (!each->is_dirty.exchange(false, std::memory_order_acquire) || (is_wait && has_ended(*each)))
      continue;
    if (each->place.load(std::memory_order_acquire) == 0) {
      is_home_dirty = true;
    } else if (is_query) {
      is_any_left = true;
      note_dirty(*each);
    } else {
      put_behind(legacy, each->physical(), here, each->physical());
    }
  }
  // After the streams: see leave_dirty().
  is_home_dirty |= device.has_left_work.exchange(false, std::memory_order_acquire);
  // The driver's own legacy stream waits for all streams at home, also for other threads' own. This
  // event comes last, so that it is behind the work of each stream that was found dirty.
  const bool is_home_empty = is_home_dirty && is_wait &&
                             captures_.load(std::memory_order_relaxed) == 0 &&
                             driver_->cuStreamQuery(GS_CU_STREAM_LEGACY) == CUDA_SUCCESS;
  if (!is_home_dirty || is_legacy_home || is_home_empty) return !is_any_left;
  if (is_query) {
    device.has_left_work.store(true, std::memory_order_relaxed);
    return false;
  }
  put_behind(legacy, GS_CU_STREAM_LEGACY, here, GS_CU_STREAM_LEGACY);
  return true;
}

// A question, as one of the program itself, which may end a capture.
bool Streams::has_ended(Stream& stream) {
  return captures_.load(std::memory_order_relaxed) == 0 && is_at_rest(stream);
}

// As chain(). Where the driver refuses that, because it has no memory for an event, the host waits
// until `asked`, which has all that an event in `from` would come after, has ended. Nothing can be
// asked while a stream captures: then false.
bool Streams::put_behind(Stream& stream, CUstream from, CUstream to, CUstream asked) {
  if (chain(stream, from, to)) return true;
  if (captures_.load(std::memory_order_relaxed) != 0) return false;
  CUresult answer = CUDA_ERROR_NOT_READY;
  for (Backoff wait; (answer = driver_->cuStreamQuery(asked)) == CUDA_ERROR_NOT_READY;)
    wait.pause();
  return answer == CUDA_SUCCESS;
}

bool Streams::home_waits(Stream& stream) {
  const KeepErrno errno_of_the_program;
  const CUstream there = stream.physical();
  return put_behind(stream, there, stream.at[0].load(std::memory_order_relaxed), there);
}

void Streams::waits_for_home(Stream& stream) {
  const KeepErrno errno_of_the_program;
  const CUstream home = stream.at[0].load(std::memory_order_relaxed);
  put_behind(stream, home, stream.physical(), home);
}

}  // namespace gpushare::shim
