// SPDX-License-Identifier: Apache-2.0
// Streams come and go, with the primary contexts that they live in. On the thread that creates or
// destroys, around the driver's call; what concerns a whole device is under its lock.
#include <strings.h>

#include <initializer_list>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/backoff.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

void Streams::on_created(CUstream handle) {
  const KeepErrno errno_of_the_program;
  Device* device = current_device();
  const Inside inside;
  if (device == nullptr) {  // the address may be that of a stream that ended with its context
    if (Entry* old = entry_of(handle)) {
      old->stream.is_used.store(false, std::memory_order_relaxed);
      old->stream.kind.store(Stream::Kind::kNone, std::memory_order_release);
      old->stream.is_taken.store(false, std::memory_order_release);
    }
    return;
  }
  unsigned flags = 0;
  Entry* entry = nullptr;
  if (driver_->cuStreamGetFlags(handle, &flags) == CUDA_SUCCESS) entry = add_entry(handle);
  if (entry == nullptr || !is_free(entry->stream)) return go_home();
  Stream& stream = entry->stream;
  const bool is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  if (stream.device != nullptr && stream.device != device) leave_dirty_list(stream);
  stream.device = device;
  stream.place.store(0, std::memory_order_relaxed);
  stream.is_dirty.store(false, std::memory_order_relaxed);
  stream.is_used.store(false, std::memory_order_relaxed);
  stream.is_leaving.store(false, std::memory_order_relaxed);
  stream.legacy_operations.store(0, std::memory_order_relaxed);
  stream.at[0].store(handle, std::memory_order_relaxed);
  stream.kind.store(is_blocking ? Stream::Kind::kBlocking : Stream::Kind::kNonBlocking,
                    std::memory_order_release);
  add_to_list(stream);
}

void Streams::note_used(Stream& stream) {
  stream.is_used.store(true, std::memory_order_release);
  forget_prepared(*stream.device);  // it has no stand-in there
}

void Streams::before_destroy(CUstream handle) {
  Entry* entry = entry_of(handle);
  const KeepErrno errno_of_the_program;
  const Inside inside;
  if (entry == nullptr ||
      entry->stream.kind.load(std::memory_order_relaxed) == Stream::Kind::kNone) {
    if (handle != nullptr) forget_unknown_capture(handle);
    return forget_unknown();
  }
  Stream& stream = entry->stream;
  Device& device = *stream.device;
  device.ending.fetch_add(1, std::memory_order_relaxed);  // before `kind`: see settle()
  leave_dirty(stream);
  // Who finds it no longer used finds the graphs that it has left (leave_graphs()).
  stream.is_used.store(false, std::memory_order_release);
  stream.kind.store(Stream::Kind::kNone, std::memory_order_seq_cst);
  // A thread that found the stream before this may use it until it is done.
  const bool is_unused = await_users(stream);
  if (stream.began_capture.exchange(false, std::memory_order_relaxed))
    captures_.fetch_sub(1, std::memory_order_relaxed);
  // Its work runs on. Home waits for it, and the home of the legacy stream waits for home.
  if (const Place place = stream.place.load(std::memory_order_relaxed); place != 0) {
    home_waits(stream);
    count_move(device, place, 0);
  }
  if (stream.is_dirty.load(std::memory_order_relaxed))
    device.has_left_work.store(true, std::memory_order_release);
  note_left_work(stream);
  device.ending.fetch_sub(1, std::memory_order_release);
  {
    const Locked locked(device.lock);  // a partition goes only with all its stand-ins
    if (is_unused) drop_stand_ins(stream);
  }
  take_off_list(stream);
  if (!is_unused) return stream.is_left_in_use.store(true, std::memory_order_relaxed);
  stream.is_taken.store(false, std::memory_order_release);  // pairs with the load in add_entry()
}

// Of one that had ended while a thread used it: whether that has left it since. Then what it kept
// goes.
bool Streams::is_free(Stream& stream) {
  if (!stream.is_left_in_use.load(std::memory_order_relaxed)) return true;
  if (stream.users.load(std::memory_order_acquire) != 0) return false;
  const Locked locked(stream.device->lock);
  drop_stand_ins(stream);
  stream.is_left_in_use.store(false, std::memory_order_relaxed);
  return true;
}

// Returns false if it is used still after a time in which no call of the driver ends but one that
// waits for the GPU. A thread that was cancelled in its call uses it for ever, and so does one
// whose signal handler has left the call and ends the program.
bool Streams::await_users(Stream& stream) const {
  for (Backoff wait; stream.users.load(std::memory_order_seq_cst) != 0; wait.pause())
    if (wait.slept_ns() >= kUserPatienceNs) return false;
  return true;
}

// The legacy stream waits for the work of a stream only while that is in use. So home waits for it
// before, and gather(), which finds the stream no longer in use, finds that home has work. While
// gather() asks whether that has ended the stream seems clean, and may be dirty again.
void Streams::leave_dirty(Stream& stream) {
  const Look look(stream);
  {
    const Locked locked(stream.device->gathering);
    if (!stream.is_dirty.load(std::memory_order_relaxed)) return;
  }
  if (stream.place.load(std::memory_order_acquire) != 0 && !is_capturing(stream))
    home_waits(stream);
  stream.device->has_left_work.store(true, std::memory_order_release);
}

// A stream that the table lacks keeps its order with the legacy stream only while all are at home.
void Streams::go_home() {
  unknown_.fetch_add(1, std::memory_order_relaxed);
  settle_all();
}

void Streams::note_bypass() {
  unknown_.fetch_add(kForGood, std::memory_order_seq_cst);
  if (Inside::is_any()) return;
  const Inside inside;
  bring_all_home();
}

// Also those with work, for which settle_all() does not wait. A thread's own default stream its
// thread alone can name.
void Streams::bring_all_home() {
  settle_all();
  if (captures_.load(std::memory_order_relaxed) != 0) return;
  const AllowedInCaptures allowed(*driver_);
  for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;) {
    Device& device = devices_[i];
    if (device.primary.load(std::memory_order_relaxed) == nullptr) continue;
    for_each_used(device, [&](Stream& stream) {
      if (stream.place.load(std::memory_order_relaxed) != 0 &&
          stream.at[0].load(std::memory_order_relaxed) != GS_CU_STREAM_PER_THREAD)
        move(stream, false);
    });
  }
}

// Perhaps it was one of those.
void Streams::forget_unknown() {
  uint32_t unknown = unknown_.load(std::memory_order_relaxed);
  if (unknown == 0 || current_device() == nullptr) return;
  while (unknown != 0 && !unknown_.compare_exchange_weak(unknown, unknown - 1)) {
  }
  if (unknown == 1) settle_all();
}

void Streams::settle_all() {
  if (captures_.load(std::memory_order_relaxed) != 0) return;
  for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;) {
    Device& device = devices_[i];
    const Locked locked(device.lock);
    if (device.gpu < 0 || device.primary.load(std::memory_order_relaxed) == nullptr) continue;
    const AllowedInCaptures allowed(*driver_);
    if (unknown_.load(std::memory_order_relaxed) != 0)
      slot().gpus[device.gpu].applied.store(0, std::memory_order_relaxed);
    settle(device);
  }
}

void Streams::drop_stand_ins(Stream& stream) {
  for (int i = 1; i <= Partitions::kMost; ++i)
    if (CUstream there = stream.at[i].exchange(nullptr, std::memory_order_relaxed))
      driver_->cuStreamDestroy_v2(there);
  for (CUevent* event : {&stream.event, &stream.departure}) {
    if (*event != nullptr) driver_->cuEventDestroy_v2(*event);
    *event = nullptr;
  }
  stream.is_leaving.store(false, std::memory_order_relaxed);
  stream.place.store(0, std::memory_order_relaxed);
}

void Streams::on_retained(CUdevice ordinal, CUcontext primary) {
  if (ordinal < 0 || ordinal >= kMostDevices) return;
  const KeepErrno errno_of_the_program;
  Device& device = devices_[ordinal];
  const Locked locked(device.lock);
  ++device.retains;
  if (device.primary.load(std::memory_order_relaxed) == primary) return;
  device.ordinal = ordinal;
  find_in_slot(device);
  // A new context is in the whole GPU, wherever the one before was.
  if (device.gpu >= 0) slot().gpus[device.gpu].applied.store(0, std::memory_order_release);
  device.legacy.device = &device;
  device.legacy.at[0].store(GS_CU_STREAM_LEGACY, std::memory_order_relaxed);
  device.legacy.kind.store(Stream::Kind::kLegacy, std::memory_order_relaxed);
  device.primary.store(primary, std::memory_order_release);
  note_only_device();
  int count = device_count_.load(std::memory_order_relaxed);
  while (count <= ordinal &&
         !device_count_.compare_exchange_weak(count, ordinal + 1, std::memory_order_release)) {
  }
}

// REQUIRES: device.lock is held. Each agent numbers its GPUs anew, and may share others than the
// one before: what it does not share nobody divides any more.
void Streams::find_in_slot(Device& device) {
  char pci[32] = {};
  const ShimSlot& mine = slot();
  const uint32_t gpus = mine.head.gpu_count.load(std::memory_order_acquire);
  int gpu = -1;
  if (driver_->cuDeviceGetPCIBusId(pci, sizeof pci, device.ordinal) == CUDA_SUCCESS)
    for (uint32_t i = 0; i < gpus && i < kShimGpus; ++i)
      if (::strncasecmp(mine.gpus[i].pci, pci, sizeof mine.gpus[i].pci) == 0)
        gpu = static_cast<int>(i);
  // What the slot before was told is nothing to this one.
  device.followed.store(kNeverFollowed, std::memory_order_relaxed);
  forget_prepared(device);
  device.found_in = &mine;
  device.gpu.store(gpu, std::memory_order_release);
  if (gpu >= 0 || device.target.load(std::memory_order_relaxed) == 0) return;
  device.followed.store(0, std::memory_order_relaxed);
  device.target.store(0, std::memory_order_relaxed);
  set_concern(device, kStreamLacks, false);
  const Inside inside;
  const AllowedInCaptures allowed(*driver_);
  settle(device);
}

void Streams::note_only_device() {
  const Locked locked(table_lock_);  // so that the last to store has seen all devices
  Device* only = nullptr;
  int count = 0;
  for (Device& device : devices_)
    if (device.primary.load(std::memory_order_relaxed) != nullptr && count++ == 0) only = &device;
  only_device_.store(count == 1 ? only : nullptr, std::memory_order_release);
}

// The green contexts keep the primary context alive, so they are destroyed first: then it ends when
// the program wants it to. All of its streams and events end with it, also the shim's.
void Streams::before_release(CUdevice ordinal, bool is_reset) {
  if (ordinal < 0 || ordinal >= kMostDevices) return;
  const KeepErrno errno_of_the_program;
  Device& device = devices_[ordinal];
  const Locked locked(device.lock);
  if (device.primary.load(std::memory_order_relaxed) == nullptr) return;
  if (device.retains > 0) --device.retains;
  if (!is_reset && device.retains > 0) return;
  device.retains = 0;
  lets_go(device, 0);
  device.primary.store(nullptr, std::memory_order_release);
  note_only_device();
  const auto forget = [this](Stream& stream) {
    if (stream.began_capture.exchange(false, std::memory_order_relaxed))
      captures_.fetch_sub(1, std::memory_order_relaxed);
    drop_stand_ins(stream);
    stream.is_dirty.store(false, std::memory_order_relaxed);
  };
  forget(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device) {
      forget(*each);
      // A thread's own stream lasts; the address of any other may return in another context.
      if (each->at[0].load(std::memory_order_relaxed) != GS_CU_STREAM_PER_THREAD) {
        each->is_used.store(false, std::memory_order_relaxed);
        each->kind.store(Stream::Kind::kNone, std::memory_order_release);
        take_off_list(*each);
        each->is_taken.store(false, std::memory_order_release);
      }
    }
  for (int i = 1; i <= Partitions::kMost; ++i) drop_spares(device, static_cast<Place>(i));
  device.milestones.drop(*driver_);
  device.partitions.drop_all(*driver_);
  device.target.store(0, std::memory_order_relaxed);
  device.followed.store(kNeverFollowed, std::memory_order_relaxed);
  device.concerns.store(0, std::memory_order_relaxed);
  device.away.store(0, std::memory_order_relaxed);
  device.has_left_work.store(false, std::memory_order_relaxed);
  for (auto& count : device.inhabitants) count.store(0, std::memory_order_relaxed);
  device.captured.store(0, std::memory_order_relaxed);
  device.captures_at.store(0, std::memory_order_relaxed);
  device.left = nullptr;
  for (CUevent& event : device.left_at) {
    if (event != nullptr) driver_->cuEventDestroy_v2(event);
    event = nullptr;
  }
  device.left_places = 0;
  device.has_graphs.store(false, std::memory_order_relaxed);
  device.left_graphs_seen.store(device.left_graphs.load(std::memory_order_relaxed),
                                std::memory_order_relaxed);
  forget_prepared(device);
}

}  // namespace gpushare::shim
