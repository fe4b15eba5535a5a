// SPDX-License-Identifier: Apache-2.0
// All streams of the process, and where each of them is: streams move between the partitions of a
// GPU while the program that holds them notices nothing. Only in processes with the feature
// kShimPartitions. docs/spatial.md has the rule for each CUDA call.
//
// The wrappers call this on any thread; a child of fork() starts anew. No call waits for another
// thread's call, with three exceptions: the end of a stream waits for those who look at it, an
// operation of the legacy stream for one that is being put behind the streams that are away, and a
// use of a stream for a move of that stream, which takes microseconds. A move needs the stream for
// itself: where another thread uses it, the launch goes to the old place, and the next one tries.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/kinds.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/streams/device.h"

namespace gpushare::shim {

// What a call does with a stream: a launch moves it, a wait leaves no work in it.
enum class Use : uint8_t { kLaunch, kOperation, kWait };

class Streams {
 public:
  static constexpr int kMostDevices = 16;
  static constexpr uint32_t kTableSize = 4096;  // streams at one time, at most
  // A partition that has been empty and idle for so long may be dropped to make room for another.
  static constexpr uint64_t kLeastIdleNs = 1'000'000'000;
  static constexpr uint64_t kTryAgainNs = 50'000'000;  // between two looks for such a one
  // How long one launch waits for rest at most, and all launches together until they pause; the
  // first pause, and the longest.
  static constexpr uint64_t kLongestRestNs = 10'000'000, kMostRestNs = 2'000'000'000,
                            kFirstRestPauseNs = 10'000'000'000,
                            kLongestRestPauseNs = 600'000'000'000;
  static constexpr unsigned kRestPollUs = 20;
  // So many waits of the program in a row try to make what was announced, as it may wait for one
  // stream after the other before it rests; then they pause.
  static constexpr uint32_t kSoonTries = 16;
  static constexpr uint64_t kSoonPauseNs = 10'000'000;
  // Announced partitions are made only up to this number, which leaves room for wanted ones.
  static constexpr int kMostWithAnnounced = Partitions::kMost / 2;

  // Null: the feature is off, or the driver has no green contexts.
  static Streams* get() {
    Process& process = this_process();
    if ((process.features.load(std::memory_order_relaxed) & kShimPartitions) == 0) return nullptr;
    Streams* there = process.streams.load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make();
  }

  // --- the table: streams.cc; streams come and go: lifetimes.cc ---

  // The stream that `handle` means in the calling thread; null: one that the shim leaves alone.
  Stream* find(CUstream handle, Flavor flavor);
  // As find(), but calls no function, and returns null also where find() would have to. Takes the
  // legacy stream of the only device whichever context is current, so the caller must not move it.
  [[gnu::always_inline]] Stream* find_at_once(CUstream handle, Flavor flavor) {
    if (handle == GS_CU_STREAM_LEGACY || (handle == nullptr && flavor == Flavor::kLegacy)) {
      Device* const device = only_device_.load(std::memory_order_acquire);
      return device == nullptr ? nullptr : &device->legacy;
    }
    Entry& entry = table_[place_of(handle) % kTableSize];
    return entry.handle.load(std::memory_order_acquire) == reinterpret_cast<uintptr_t>(handle) &&
                   entry.stream.kind.load(std::memory_order_acquire) != Stream::Kind::kNone
               ? &entry.stream
               : nullptr;
  }
  void on_created(CUstream handle);
  void before_destroy(CUstream handle);  // before the driver destroys its home
  void on_retained(CUdevice device, CUcontext primary);
  // Before the driver's call. `is_reset`: the context ends whatever the program's count is.
  void before_release(CUdevice device, bool is_reset);
  // Contexts beside the primary ones have come (+1) or gone (-1). While there are any, no partition
  // and no stand-in is made.
  void count_other_contexts(int more) {
    other_contexts_.fetch_add(more, std::memory_order_relaxed);
  }

  // --- one use of a stream: stream_use.h ---

  // Returns true if the stream can be used as it is: it is where it should be, need not wait for
  // the legacy stream, and the use is not refused.
  bool is_settled(const Stream& stream, Use use) const;
  // The call is made. The legacy stream has to wait for what it put into a blocking stream, and
  // streams that are away for what it put into the legacy stream. A stream that leaves home after
  // this found none away leaves its place behind the operation, by the driver's own order.
  [[gnu::always_inline]] static void end_use(Stream& stream) {
    const Stream::Kind kind = stream.kind.load(std::memory_order_relaxed);
    const bool is_legacy = kind == Stream::Kind::kLegacy;
    if (!is_legacy && kind != Stream::Kind::kNonBlocking &&
        !stream.is_dirty.load(std::memory_order_relaxed))
      stream.is_dirty.store(true, std::memory_order_release);
    stream.users.fetch_sub(1, std::memory_order_seq_cst);  // and nothing of the above comes later
    if (is_legacy && stream.device->away.load(std::memory_order_seq_cst) != 0)
      stream.legacy_operations.fetch_add(1, std::memory_order_release);
  }
  // After work was put into a thread's own default stream at home, by that thread. The event behind
  // the work lets other threads ask whether it is done; with one such stream the legacy stream
  // answers that as well.
  void mark(Stream& stream) {
    if (stream.device->own_streams.load(std::memory_order_relaxed) > 1) return record_mark(stream);
    stream.is_unmarked = true;
  }

  // --- moves.cc, announced.cc ---

  void move_to_target(Stream& stream);
  // The host has waited for some work of the current context; makes what the agent has announced.
  // REQUIRES: the caller uses no stream.
  void after_wait() {
    bool is_new = false;  // asking for the current context costs more than to look at all devices
    for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;)
      is_new |= is_announced_new(devices_[i]);
    if (__builtin_expect(!is_new, 1)) return;
    Device* device = current_device();
    if (device != nullptr && is_announced_new(*device)) make_announced(*device);
  }

  // --- legacy.cc. REQUIRES: the caller is one of the stream's users ---

  void order_with_legacy(Stream& stream, Use use);
  void home_waits(Stream& stream);      // what is put in line at home later runs after its work
  void waits_for_home(Stream& stream);  // and the other way round

  // --- captures.cc ---

  // Moves the streams of its device to where graphs are captured, except those in use. REQUIRES:
  // the caller is not one of the stream's users; a per-thread stream is the caller's own.
  void before_capture(Stream& stream);
  void begin_capture(Stream& stream);
  void end_capture(Stream& stream);
  bool is_any_capturing() const { return captures_.load(std::memory_order_relaxed) != 0; }
  // What the driver would answer to a call of the legacy stream while a blocking stream captures. A
  // stand-in is not blocking, so the driver does not. With `ends_captures` the captures become
  // invalid, as by an operation. REQUIRES: the caller is one of the stream's users.
  CUresult refusal_of(const Stream& stream, bool ends_captures);
  // The same for a wait for a whole context (null: the current one): the driver looks at the
  // streams of that context alone, and stand-ins belong to others.
  CUresult refusal_of_wait(CUcontext context);
  void note_child_graph() { has_child_graphs_.store(true, std::memory_order_relaxed); }
  // For a stream that is away. Kernels of a graph that was not captured run in the whole GPU in any
  // case. A graph within a graph must not be launched into a partition's stream: now and then the
  // stream is done before the graph (H200, driver 580.159.04; a scene of tests/conformance).
  bool launches_graphs_at_home(const Stream& stream) const {
    return has_child_graphs_.load(std::memory_order_relaxed) ||
           stream.device->captures_at.load(std::memory_order_relaxed) == 0;
  }

 private:
  struct alignas(64) Entry {  // what a launch looks at lies on its first line
    std::atomic<uintptr_t> handle;
    Stream stream;
  };

  static uint32_t place_of(CUstream handle) {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(handle) >> 4) * 0x9E3779B1);
  }
  // streams.cc
  static Streams* make();
  Device* current_device();
  Device* device_of(CUcontext context);
  Stream* per_thread(Device& device);
  Entry* entry_of(CUstream handle);
  Entry* add_entry(CUstream handle);
  void add_to_list(Stream& stream);
  // lifetimes.cc
  void drop_stand_ins(Stream& stream);  // and its event; its place is home again
  void note_only_device();
  // moves.cc
  bool is_wanted_new(const Device& device) const;
  Partitions::Place target_of(const Device& device) const;
  void follow_wanted(Device& device);
  bool try_to_follow(Device& device, uint64_t& begin_ns);
  void say(const Device& device, ShimFollows follows) const;
  void move(Stream& stream, bool to_capture);
  void count_move(Device& device, Partitions::Place from, Partitions::Place to);
  bool chain(Stream& stream, CUstream from, CUstream to);
  bool make_stand_in(Stream& stream, Partitions::Place place);
  // rest.cc, room.cc. REQUIRES: device.lock is held, if they take a device.
  bool hold_at_rest(Device& device);
  void let_go(Device& device);
  static bool may_wait_for_rest(Device& device, uint64_t now, uint64_t& begin_ns);
  bool is_at_rest(const Stream& stream) const;
  bool has_stand_ins(const Device& device, Partitions::Place place) const;
  bool make_stand_ins(Device& device, Partitions::Place place);
  bool make_left(Device& device);
  void record_mark(Stream& stream);
  void prepare(Stream& stream);
  void note_left_work(Stream& stream);
  bool make_room(Device& device);
  bool is_idle(Device& device, Partitions::Place place) const;
  // announced.cc
  bool is_announced_new(const Device& device) const {
    bool is_new = false;
    for (uint32_t i = 0; device.gpu >= 0 && i < kShimSoon; ++i)
      is_new |= slot().soon[device.gpu].sets[i].load(std::memory_order_relaxed) !=
                device.prepared[i].load(std::memory_order_relaxed);
    return is_new;
  }
  void make_announced(Device& device);
  bool is_prepared(const Device& device, uint64_t set) const;
  static void forget_prepared(Device& device);
  // legacy.cc, captures.cc
  void gather(Stream& legacy);
  bool is_capturing(const Stream& stream) const;
  bool is_any_refused(const Device& device, bool is_only_of_blocking, bool ends_captures);
  Partitions::Place capture_place(const Device& device) const;

  const Driver* driver_;
  std::atomic<uint32_t> captures_;  // streams that capture a graph; while any does, none moves
  std::atomic<int> other_contexts_;
  std::atomic<bool> has_child_graphs_;
  std::atomic<Device*> only_device_;  // with a primary context; null: there are none or several
  std::atomic<bool> is_overfull_;     // the table lacks some stream, so all stay at home
  std::atomic<Stream*> all_;          // a list of all but the legacy streams; it never shrinks
  SpinLock table_lock_;               // for new entries of table_ and for only_device_
  Device devices_[kMostDevices];
  std::atomic<int> device_count_;  // 1 + the highest number of those with a primary context
  Entry table_[kTableSize];
};

[[gnu::always_inline]] inline bool Streams::is_wanted_new(const Device& device) const {
  return device.gpu >= 0 && slot().gpus[device.gpu].wanted.load(std::memory_order_relaxed) !=
                                device.followed.load(std::memory_order_relaxed);
}

[[gnu::always_inline]] inline Partitions::Place Streams::target_of(const Device& device) const {
  return is_overfull_.load(std::memory_order_relaxed)
             ? Partitions::Place{0}
             : device.target.load(std::memory_order_relaxed);
}

[[gnu::always_inline]] inline bool Streams::is_settled(const Stream& stream, Use use) const {
  const Stream::Kind kind = stream.kind.load(std::memory_order_relaxed);
  if (captures_.load(std::memory_order_relaxed) != 0) return false;
  const Device& device = *stream.device;
  // With all streams at home the driver keeps its order.
  if (kind == Stream::Kind::kLegacy && device.away.load(std::memory_order_relaxed) != 0)
    return false;
  if (use == Use::kWait) return true;
  if (kind == Stream::Kind::kBlocking &&
      stream.legacy_operations.load(std::memory_order_relaxed) !=
          device.legacy.legacy_operations.load(std::memory_order_acquire))
    return false;
  return use != Use::kLaunch ||
         (stream.place.load(std::memory_order_relaxed) == target_of(device) &&
          !device.lacks.load(std::memory_order_relaxed) && !is_wanted_new(device));
}

}  // namespace gpushare::shim
