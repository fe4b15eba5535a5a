// SPDX-License-Identifier: Apache-2.0
// Threads' own default streams: one of each thread and device, which the program never creates and
// never destroys. On the thread whose stream it is, except where threads look for those that have
// ended.
#include <sys/mman.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/thread_id.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {
namespace {

// A thread's own default streams, by device. `owner` is the Streams that they belong to: in a child
// of fork() it is the parent's, and the entries do not count.
struct OwnStreams {
  const Streams* owner;
  Stream* of_device[Streams::kMostDevices];
};
constinit thread_local OwnStreams own_streams{};

}  // namespace

// What a thread's own stream is known by lasts as long as the process, because its work outlives
// the thread. When that is done another thread has it.
Stream* Streams::per_thread(Device& device) {
  if (own_streams.owner != this) own_streams = {.owner = this, .of_device = {}};
  Stream*& mine = own_streams.of_device[device.ordinal];
  if (mine != nullptr) return mine;
  const KeepErrno errno_of_the_program;
  mine = inherit(device);
  if (mine == nullptr) mine = make_own(device);
  return mine;
}

Stream* Streams::make_own(Device& device) {
  void* memory =
      ::mmap(nullptr, sizeof(Stream), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    unknown_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  auto* made = static_cast<Stream*>(memory);
  made->device = &device;
  made->owner.store(thread_id(), std::memory_order_relaxed);
  made->at[0].store(GS_CU_STREAM_PER_THREAD, std::memory_order_relaxed);
  made->kind.store(Stream::Kind::kBlocking, std::memory_order_relaxed);
  device.own_streams.fetch_add(1, std::memory_order_relaxed);
  add_to_list(*made);
  made->next_own = device.own.load(std::memory_order_relaxed);
  while (!device.own.compare_exchange_weak(made->next_own, made, std::memory_order_release)) {
  }
  return made;
}

// That of a thread which has ended, with its stand-ins, if nothing of it runs any more. A few are
// looked at, each time others, so that their number stays in proportion to that of living threads
// and a new thread costs the same whatever there is. Null: none was found.
Stream* Streams::inherit(Device& device) {
  if (captures_.load(std::memory_order_relaxed) != 0) return nullptr;
  const TryLocked locked(device.lock);  // so that no stand-in goes meanwhile
  if (!locked.is_held()) return nullptr;
  const Inside inside;
  const AllowedInCaptures allowed(*driver_);
  Stream*& each = device.next_heirloom;
  Stream* found = nullptr;
  for (int i = 0; i < kMostHeirlooms && found == nullptr; ++i) {
    if (each == nullptr) each = device.own.load(std::memory_order_acquire);
    if (each == nullptr) return nullptr;
    if (take_over(*each)) found = each;
    each = each->next_own;
  }
  return found;
}

// REQUIRES: the device's lock is held.
bool Streams::take_over(Stream& stream) {
  uint32_t before = stream.owner.load(std::memory_order_relaxed);
  if (is_alive(before)) return false;
  const Alone alone(stream);
  if (!alone.is_alone() || stream.began_capture.load(std::memory_order_relaxed) ||
      stream.is_leaving.load(std::memory_order_acquire) || !is_at_rest(stream) ||
      !stream.owner.compare_exchange_strong(before, thread_id()))
    return false;
  // This thread's stream at home is another one than its predecessor's.
  stream.legacy_operations.store(kWaitsForLegacy, std::memory_order_release);
  stream.is_unmarked.store(false, std::memory_order_relaxed);
  for (int i = 1; i <= Partitions::kMost; ++i)
    if (const CUstream there = stream.at[i].load(std::memory_order_relaxed))
      driver_->cuStreamCopyAttributes(there, GS_CU_STREAM_PER_THREAD);
  return true;
}

// Now and then, by a thread that uses a stream. It waits for no other thread.
void Streams::end_left_captures() {
  const uint64_t now = monotonic_ns();
  uint64_t due = next_left_capture_ns_.load(std::memory_order_relaxed);
  if (now < due || !next_left_capture_ns_.compare_exchange_strong(due, now + kLeftCaptureNs,
                                                                  std::memory_order_relaxed))
    return;
  const KeepErrno errno_of_the_program;
  const Inside inside;
  for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;) {
    Device& device = devices_[i];
    const TryLocked locked(device.lock);  // so that no stand-in goes meanwhile
    if (!locked.is_held() || device.primary.load(std::memory_order_relaxed) == nullptr) continue;
    for (Stream* each = device.own.load(std::memory_order_acquire); each != nullptr;
         each = each->next_own)
      if (each->began_capture.load(std::memory_order_relaxed)) end_left_capture(*each);
  }
}

// The driver may call it an error that another thread ends the capture, and ends it. At home the
// stream has a name that means the calling thread's own one, so there it is only not counted any
// more. REQUIRES: the device's lock is held.
void Streams::end_left_capture(Stream& stream) {
  if (is_alive(stream.owner.load(std::memory_order_relaxed))) return;
  const Alone alone(stream);
  if (!alone.is_alone() || !stream.began_capture.exchange(false, std::memory_order_relaxed)) return;
  const CUstream there = stream.physical();
  CUgraph graph = nullptr;
  if (there != GS_CU_STREAM_PER_THREAD &&
      driver_->cuStreamEndCapture(there, &graph) == CUDA_SUCCESS && graph != nullptr)
    driver_->cuGraphDestroy(graph);
  captures_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace gpushare::shim
