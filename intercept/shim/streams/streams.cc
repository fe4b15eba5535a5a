// SPDX-License-Identifier: Apache-2.0
// The table: which stream a handle means. Entries are added under table_lock_ and never removed, so
// that any thread may read without it.
#include "intercept/shim/streams/streams.h"

#include <sys/mman.h>

#include "intercept/shim/driver/bypass.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

constinit thread_local int Inside::depth_ = 0;

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
  auto* made = static_cast<Streams*>(memory);  // zero bytes are a Streams without any stream
  made->driver_ = functions;
  int version = 0;
  made->is_driver_newer_ =
      functions->cuDriverGetVersion(&version) != CUDA_SUCCESS || version > kNewestKnown;
  made->known_slot_ = process.slot.load(std::memory_order_acquire);
  Streams* there = nullptr;
  if (process.streams.compare_exchange_strong(there, made, std::memory_order_seq_cst)) {
    when_driver_is_bypassed.store(
        [] {
          // Not made in a child of fork() that has none of its own yet.
          if (Streams* all = this_process().streams.load(std::memory_order_acquire))
            all->note_bypass();
        },
        std::memory_order_seq_cst);
    if (is_driver_bypassed.load(std::memory_order_seq_cst)) made->unknown_.fetch_add(kForGood);
    return made;
  }
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
  for (uint32_t i = 0, at = place_of(handle); i < kMostProbes; ++i, ++at) {
    Entry& entry = table_[at % kTableSize];
    const uintptr_t there = entry.handle.load(std::memory_order_acquire);
    if (there == number) return &entry;
    if (there == 0) return nullptr;
  }
  return nullptr;
}

// The address of a destroyed stream keeps its entry, as the driver gives addresses out again, until
// another stream needs it.
Streams::Entry* Streams::add_entry(CUstream handle) {
  const Locked locked(table_lock_);
  if (Entry* known = entry_of(handle)) {
    known->stream.is_taken.store(true, std::memory_order_relaxed);
    return known;
  }
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Entry* free = nullptr;
  for (uint32_t i = 0, at = place_of(handle); i < kMostProbes; ++i, ++at) {
    Entry& entry = table_[at % kTableSize];
    const bool is_new = entry.handle.load(std::memory_order_relaxed) == 0;
    if (free == nullptr && (is_new || !entry.stream.is_taken.load(std::memory_order_acquire)))
      free = &entry;
    if (is_new) break;
  }
  if (free == nullptr) return nullptr;
  free->stream.is_taken.store(true, std::memory_order_relaxed);
  free->handle.store(number, std::memory_order_release);
  return free;
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

void Streams::add_to_list(Stream& stream) {
  const Locked locked(list_lock_);
  if (stream.is_in_list) return;
  stream.is_in_list = true;
  Stream* const first = all_.load(std::memory_order_relaxed);
  stream.previous = nullptr;
  stream.next.store(first, std::memory_order_relaxed);
  if (first != nullptr) first->previous = &stream;
  all_.store(&stream, std::memory_order_release);
  listed_.fetch_add(1, std::memory_order_relaxed);
}

// Other threads may be looking at it, without a lock: they go on from it to those that follow, or,
// when it is on the list again, once more to all. REQUIRES: nobody holds it for a move.
void Streams::take_off_list(Stream& stream) {
  const Locked locked(list_lock_);
  if (!stream.is_in_list) return;
  stream.is_in_list = false;
  Stream* const after = stream.next.load(std::memory_order_relaxed);
  if (after != nullptr) after->previous = stream.previous;
  if (stream.previous != nullptr)
    stream.previous->next.store(after, std::memory_order_release);
  else
    all_.store(after, std::memory_order_release);
  listed_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
