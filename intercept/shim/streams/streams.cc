// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/streams/streams.h"

#include <sched.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {
namespace {

using Place = Partitions::Place;

// A thread's own default streams. `owner` tells them from those that a fork() left behind.
struct OwnStreams {
  const Streams* owner;
  Stream* of_device[Streams::kMostDevices];
};
constinit thread_local OwnStreams own_streams{};

}  // namespace

void SpinLock::lock() {
  while (held_.exchange(true, std::memory_order_acquire)) ::sched_yield();
}

// --- finding ------------------------------------------------------------------------------------

Streams* Streams::make() {
  Process& process = this_process();
  const KeepErrno errno_of_the_program;
  const Driver* functions = driver();
  void* memory = functions == nullptr ? MAP_FAILED
                                      : ::mmap(nullptr, sizeof(Streams), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    process.features.fetch_and(~uint32_t{kShimPartitions}, std::memory_order_relaxed);
    return nullptr;
  }
  auto* made = static_cast<Streams*>(memory);  // zero is a valid one, without any stream
  made->driver_ = functions;
  Streams* there = nullptr;
  if (process.streams.compare_exchange_strong(there, made, std::memory_order_acq_rel)) return made;
  ::munmap(memory, sizeof(Streams));
  return there;
}

Device* Streams::device_of(CUcontext context) {
  if (context == nullptr) return nullptr;
  const int count = device_count_.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i)
    if (devices_[i].primary.load(std::memory_order_acquire) == context) return &devices_[i];
  return nullptr;
}

Device* Streams::current_device() {
  CUcontext context = nullptr;
  if (driver_->cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
  return device_of(context);
}

Streams::Entry* Streams::entry_of(CUstream handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  for (uint32_t i = 0, at = place_of(handle); i < kTableSize; ++i, ++at) {
    Entry& entry = table_[at % kTableSize];
    const uintptr_t there = entry.handle.load(std::memory_order_acquire);
    if (there == number) return &entry;
    if (there == 0) return nullptr;
  }
  return nullptr;
}

// An address of a stream that was destroyed keeps its entry: the driver gives it out again.
Streams::Entry* Streams::add_entry(CUstream handle) {
  if (Entry* known = entry_of(handle)) return known;
  const Locked locked(table_lock_);
  const auto number = reinterpret_cast<uintptr_t>(handle);
  for (uint32_t i = 0, at = place_of(handle); i < kTableSize; ++i, ++at) {
    Entry& entry = table_[at % kTableSize];
    if (entry.handle.load(std::memory_order_relaxed) != 0) continue;
    entry.handle.store(number, std::memory_order_release);
    return &entry;
  }
  return nullptr;
}

Stream* Streams::find(CUstream handle, Flavor flavor) {
  if (handle == nullptr)
    handle = flavor == Flavor::kLegacy ? GS_CU_STREAM_LEGACY : GS_CU_STREAM_PER_THREAD;
  if (handle == GS_CU_STREAM_LEGACY || handle == GS_CU_STREAM_PER_THREAD) {
    Device* device = current_device();
    if (device == nullptr) return nullptr;
    return handle == GS_CU_STREAM_LEGACY ? &device->legacy : per_thread(*device);
  }
  Entry* entry = entry_of(handle);
  if (entry == nullptr || entry->stream.kind.load(std::memory_order_acquire) == Stream::Kind::kNone)
    return nullptr;
  return &entry->stream;
}

// A thread's stream lasts as long as the process: what is in it outlives the thread.
Stream* Streams::per_thread(Device& device) {
  if (own_streams.owner != this) own_streams = {.owner = this, .of_device = {}};
  Stream*& mine = own_streams.of_device[device.ordinal];
  if (mine != nullptr) return mine;
  const KeepErrno errno_of_the_program;
  void* memory =
      ::mmap(nullptr, sizeof(Stream), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    is_overfull_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  mine = static_cast<Stream*>(memory);
  mine->device = &device;
  mine->at[0].store(GS_CU_STREAM_PER_THREAD, std::memory_order_relaxed);
  mine->kind.store(Stream::Kind::kBlocking, std::memory_order_relaxed);
  device.own_streams.fetch_add(1, std::memory_order_relaxed);
  add_to_list(*mine);
  prepare(*mine);
  return mine;
}

void Streams::add_to_list(Stream& stream) {
  stream.next = all_.load(std::memory_order_relaxed);
  while (!all_.compare_exchange_weak(stream.next, &stream, std::memory_order_release)) {
  }
}

// --- coming and going ---------------------------------------------------------------------------

void Streams::on_created(CUstream handle) {
  const KeepErrno errno_of_the_program;
  Device* device = current_device();
  if (device == nullptr) {  // the address may be that of one that went with its context
    if (Entry* old = entry_of(handle))
      old->stream.kind.store(Stream::Kind::kNone, std::memory_order_release);
    return;
  }
  unsigned flags = 0;
  Entry* entry = nullptr;
  if (driver_->cuStreamGetFlags(handle, &flags) == CUDA_SUCCESS) entry = add_entry(handle);
  if (entry == nullptr) {
    is_overfull_.store(true, std::memory_order_relaxed);
    return;
  }
  Stream& stream = entry->stream;
  const bool is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  if (stream.device == nullptr) add_to_list(stream);  // else it is, from an earlier life
  stream.device = device;
  stream.place.store(0, std::memory_order_relaxed);
  stream.is_dirty.store(false, std::memory_order_relaxed);
  stream.legacy_operations.store(0, std::memory_order_relaxed);
  stream.at[0].store(handle, std::memory_order_relaxed);
  stream.kind.store(is_blocking ? Stream::Kind::kBlocking : Stream::Kind::kNonBlocking,
                    std::memory_order_release);
  prepare(stream);
}

void Streams::before_destroy(CUstream handle) {
  Entry* entry = entry_of(handle);
  if (entry == nullptr) return;
  const KeepErrno errno_of_the_program;
  Stream& stream = entry->stream;
  if (stream.kind.load(std::memory_order_relaxed) == Stream::Kind::kNone) return;
  stream.kind.store(Stream::Kind::kNone, std::memory_order_seq_cst);
  // Whoever looked before sees it out.
  while (stream.users.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  // Its capture ends with it.
  if (stream.began_capture.exchange(false, std::memory_order_relaxed))
    captures_.fetch_sub(1, std::memory_order_relaxed);
  // Its work goes on; home ends when it does, and the home of the legacy stream waits for home.
  if (stream.is_dirty.load(std::memory_order_relaxed))
    stream.device->has_left_work.store(true, std::memory_order_relaxed);
  if (const Place place = stream.place.load(std::memory_order_relaxed); place != 0) {
    home_waits(stream);
    count_move(*stream.device, place, 0);
  }
  note_left_work(stream);
  drop_stand_ins(stream);
}

void Streams::drop_stand_ins(Stream& stream) {
  for (int i = 1; i <= Partitions::kMost; ++i)
    if (CUstream there = stream.at[i].exchange(nullptr, std::memory_order_relaxed))
      driver_->cuStreamDestroy_v2(there);
  if (stream.event != nullptr) driver_->cuEventDestroy_v2(stream.event);
  stream.event = nullptr;
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
  device.gpu = -1;
  char pci[32] = {};
  const ShimSlot& mine = slot();
  if (driver_->cuDeviceGetPCIBusId(pci, sizeof pci, ordinal) == CUDA_SUCCESS)
    for (uint32_t i = 0; i < mine.head.gpu_count && i < kShimGpus; ++i)
      if (::strncasecmp(mine.gpus[i].pci, pci, sizeof mine.gpus[i].pci) == 0)
        device.gpu = static_cast<int>(i);
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

void Streams::note_only_device() {
  const Locked locked(table_lock_);  // whoever looks last has seen all
  Device* only = nullptr;
  int count = 0;
  for (Device& device : devices_)
    if (device.primary.load(std::memory_order_relaxed) != nullptr && count++ == 0) only = &device;
  only_device_.store(count == 1 ? only : nullptr, std::memory_order_release);
}

// The green contexts hold the primary context: they go first, so that it goes when the program
// wants it to. With it go all of its streams and events, also ours.
void Streams::before_release(CUdevice ordinal, bool is_reset) {
  if (ordinal < 0 || ordinal >= kMostDevices) return;
  const KeepErrno errno_of_the_program;
  Device& device = devices_[ordinal];
  const Locked locked(device.lock);
  if (device.primary.load(std::memory_order_relaxed) == nullptr) return;
  if (device.retains > 0) --device.retains;
  if (!is_reset && device.retains > 0) return;
  device.retains = 0;
  device.primary.store(nullptr, std::memory_order_release);
  note_only_device();
  const auto forget = [this](Stream& stream) {
    drop_stand_ins(stream);
    stream.is_dirty.store(false, std::memory_order_relaxed);
  };
  forget(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device) {
      forget(*each);
      // A thread's own lasts; another one's address may be given out in another context.
      if (each->at[0].load(std::memory_order_relaxed) != GS_CU_STREAM_PER_THREAD)
        each->kind.store(Stream::Kind::kNone, std::memory_order_release);
    }
  device.partitions.drop_all(*driver_);
  device.target.store(0, std::memory_order_relaxed);
  device.followed.store(0, std::memory_order_relaxed);
  device.away.store(0, std::memory_order_relaxed);
  device.has_left_work.store(false, std::memory_order_relaxed);
  for (auto& count : device.inhabitants) count.store(0, std::memory_order_relaxed);
  device.captured.store(0, std::memory_order_relaxed);
  device.captures_at.store(0, std::memory_order_relaxed);
  device.left = nullptr;
  device.lacks.store(false, std::memory_order_relaxed);
  forget_prepared(device);
}

// --- moving -------------------------------------------------------------------------------------

void Streams::follow_wish(Device& device) {
  const KeepErrno errno_of_the_program;
  uint64_t begin_ns = 0;
  while (!try_to_follow(device, begin_ns)) ::usleep(kRestPollUs);
}

// Whether that is done with, for now. `begin_ns`: of the launch's wait for rest; 0: it has not
// begun.
bool Streams::try_to_follow(Device& device, uint64_t& begin_ns) {
  const Locked locked(device.lock);
  const bool is_new = is_wish_new(device);
  if (!(is_new || device.lacks.load(std::memory_order_relaxed)) ||
      device.primary.load(std::memory_order_relaxed) == nullptr)
    return true;
  ShimGpu& gpu = slot().gpus[device.gpu];
  const uint64_t wanted = gpu.wanted.load(std::memory_order_relaxed);
  int place =
      is_new ? device.partitions.find(wanted) : device.target.load(std::memory_order_relaxed);
  if (place == Partitions::kNone || !has_stand_ins(device, static_cast<Place>(place))) {
    // Without room a later launch tries again.
    if (place == Partitions::kNone && device.partitions.is_full() && !make_room(device)) {
      say(device, ShimFollows::kNoRoom);
      return true;
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
  // One that cannot be made is not tried again at each launch.
  device.followed.store(wanted, std::memory_order_relaxed);
  if (place < 0) return true;
  device.target.store(static_cast<Place>(place), std::memory_order_relaxed);
  gpu.applied.store(wanted, std::memory_order_release);
  return true;
}

bool Streams::is_idle(Device& device, Place place) const {
  if (device.inhabitants[place].load(std::memory_order_acquire) != 0 ||
      (device.captured.load(std::memory_order_relaxed) >> place & 1) != 0)
    return false;
  for (Stream* each = all_.load(std::memory_order_acquire);; each = each->next) {
    Stream& stream = each == nullptr ? device.legacy : *each;
    if (stream.device == &device) {
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

// REQUIRES: device.lock is held, no stream captures. All partitions are in use. One that was empty
// and idle already a second ago goes: nobody can still be waiting for what ran there.
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
  if (oldest == 0) return false;
  const auto leave = [&](Stream& stream) {
    if (stream.device != &device) return;
    if (CUstream there = stream.at[oldest].exchange(nullptr, std::memory_order_relaxed))
      driver_->cuStreamDestroy_v2(there);
  };
  leave(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    leave(*each);
  device.partitions.drop(*driver_, static_cast<Place>(oldest));
  device.idle_since_ns[oldest] = 0;
  return true;
}

// But that it leaves home, which is counted before: see end_use().
void Streams::count_move(Device& device, Place from, Place to) {
  if (from != 0) device.inhabitants[from].fetch_sub(1, std::memory_order_release);
  if (to == 0) {
    device.away.fetch_sub(1, std::memory_order_relaxed);
  } else {
    device.inhabitants[to].fetch_add(1, std::memory_order_relaxed);
  }
}

// What is put into `to` from now on runs after what is in `from`.
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

Place Streams::capture_place(const Device& device) const {
  const uint32_t there = device.captures_at.load(std::memory_order_relaxed);
  if (there == 0 || is_overfull_.load(std::memory_order_relaxed)) return target_of(device);
  return static_cast<Place>(there - 1);
}

void Streams::move_to_target(Stream& stream) {
  Device& device = *stream.device;
  const bool may_make = captures_.load(std::memory_order_relaxed) == 0;
  if (__builtin_expect(is_wish_new(device) || device.lacks.load(std::memory_order_relaxed), 0) &&
      may_make)
    follow_wish(device);
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
  // While it is moving no partition is dropped: this one stays.
  const Place target = to_capture ? capture_place(device) : target_of(device);
  const bool has_ended = stream.kind.load(std::memory_order_seq_cst) == Stream::Kind::kNone;
  // To be captured it must be there. Else it stays until one can be made.
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
  // Others may have added themselves, and are about to see that it is moving.
  stream.users.fetch_sub(Stream::kMoving, std::memory_order_release);
}

// --- captures -----------------------------------------------------------------------------------

// Streams may join the capture later, so all of them go. Another thread's own default stream cannot
// be named by this one.
void Streams::before_capture(Stream& stream) {
  Device& device = *stream.device;
  if (captures_.load(std::memory_order_relaxed) != 0) return;
  if (device.captures_at.load(std::memory_order_relaxed) == 0) {
    if (is_wish_new(device)) follow_wish(device);
    uint32_t nowhere = 0;
    device.captures_at.compare_exchange_strong(nowhere, 1u + target_of(device));
  }
  const Place place = capture_place(device);
  const auto bring = [&](Stream& each) {
    if (each.place.load(std::memory_order_relaxed) != place) move(each, true);
  };
  bring(stream);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device &&
        each->at[0].load(std::memory_order_relaxed) != GS_CU_STREAM_PER_THREAD)
      bring(*each);
}

// None moves meanwhile.
void Streams::begin_capture(Stream& stream) {
  for (int i = 1; i <= Partitions::kMost; ++i)
    if (stream.device->inhabitants[i].load(std::memory_order_relaxed) != 0)
      stream.device->captured.fetch_or(1u << i, std::memory_order_relaxed);
  if (!stream.began_capture.exchange(true, std::memory_order_relaxed))
    captures_.fetch_add(1, std::memory_order_relaxed);
}

void Streams::end_capture(Stream& stream) {
  CUstreamCaptureStatus status{};
  driver_->cuStreamIsCapturing(stream.physical(), &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE &&
      stream.began_capture.exchange(false, std::memory_order_relaxed))
    captures_.fetch_sub(1, std::memory_order_relaxed);
}

// --- one call -----------------------------------------------------------------------------------

void StreamUse::take(Flavor flavor, Use use) {
  Streams* all = Streams::get();
  if (__builtin_expect(all == nullptr, 1)) return;
  stream_ = all->find(handle_, flavor);
  if (stream_ == nullptr) return;
  if (use == Use::kLaunch) all->move_to_target(*stream_);
  // A move takes a few microseconds.
  while ((stream_->users.fetch_add(1, std::memory_order_acquire) & Stream::kMoving) != 0) {
    stream_->users.fetch_sub(1, std::memory_order_relaxed);
    ::sched_yield();
  }
  is_held_ = true;
  all->order_with_legacy(*stream_, use);
  if (stream_->place.load(std::memory_order_acquire) != 0) physical_ = stream_->physical();
  is_to_be_marked_ = stream_->is_own_at_home();
  if (use != Use::kWait) return;
  stream_->users.fetch_sub(1, std::memory_order_release);
  is_held_ = false;
}

}  // namespace gpushare::shim
