// SPDX-License-Identifier: Apache-2.0
// All streams of the process, and where each of them is: streams move between the partitions of a
// GPU while the program that holds them notices nothing. Only in processes with the feature
// kShimPartitions. docs/spatial.md has the rule for each CUDA call.
//
// The wrappers call this on any thread; a child of fork() starts anew. No call waits for another
// thread's call, with these exceptions: the end of a stream waits for those who look at it, and
// while a partition is made; an operation of the legacy stream for one that is being put behind the
// streams that are away, and for the begin of a capture, which waits for that, too; a use of a
// stream for a move of that stream, which takes microseconds; the end of a call for another one
// that puts a stream on the list of those that are dirty; who takes or gives up a primary context
// for another one that does; and launches for the end of the work in line when a new partition is
// made (drain.h). A move needs the stream for itself: where another thread uses it, the launch goes
// to the old place, and the next one tries.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/kinds.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/hash.h"
#include "intercept/shim/streams/device.h"

namespace gpushare::shim {

// What a call does with a stream: a launch moves it, a wait leaves no work in it, and a query does
// not even wait for what comes before. A question of something else than work concerns no order.
enum class Use : uint8_t { kLaunch, kOperation, kWait, kQuery, kQuestion };
constexpr bool leaves_no_work(Use use) { return use >= Use::kWait; }

// While it lives, the calling thread is in the shim's own calls of the driver. What the program
// calls on it then (a profiler's callback does) is made where the stream is, and moves nothing.
class Inside {
 public:
  Inside() { ++depth_; }
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool is_any() { return depth_ != 0; }

 private:
  static constinit thread_local int depth_;
};

class Streams {
 public:
  static constexpr int kMostDevices = 16;
  static constexpr uint32_t kTableSize = 1 << 16;  // a power of two
  // A stream is found at one of so many entries; one that finds them all taken is not followed.
  static constexpr uint32_t kMostProbes = 64;
  // A partition that has been empty and idle for so long may be dropped to make room for another.
  static constexpr uint64_t kLeastIdleNs = 1'000'000'000;
  static constexpr uint32_t kForGood = 1u << 30;  // more than there are streams
  // The end of a stream waits for so long for those who use it.
  static constexpr uint64_t kUserPatienceNs = 500'000'000;
  static constexpr uint64_t kTryAgainNs = 50'000'000;  // between two looks for such a one
  // Between two looks of a launch that is held whether the queue is empty: the shorter one at
  // first, and one of this many parts of the time that it was held.
  static constexpr uint64_t kShortestPollNs = 20'000, kLongestPollNs = 1'000'000, kPollParts = 64;
  // Launches do not try to follow for so long after something was in the way.
  static constexpr uint64_t kHinderedNs = 1'000'000;
  // Between two looks whether all streams have arrived.
  static constexpr uint64_t kSettleNs = 200'000;
  // So many waits of the program in a row try to make what was announced, as it may wait for one
  // stream after the other before it rests; then they pause.
  static constexpr uint32_t kSoonTries = 16;
  static constexpr uint64_t kSoonPauseNs = 10'000'000;
  // Announced partitions are made only up to this number, which leaves room for wanted ones.
  static constexpr int kMostWithAnnounced = Partitions::kMost / 2;
  // Streams that are left alone and capture at the same time; further ones are not noted.
  // Events that are known to be of a capture; if there are more, any event may be.
  static constexpr uint32_t kMostCapturedEvents = 256;
  static constexpr int kMostUnknownCaptures = 16;
  // Between two looks whether a thread has ended that captured.
  static constexpr uint64_t kLeftCaptureNs = 10'000'000;
  // A new thread looks at so many streams of others whether one has ended.
  static constexpr int kMostHeirlooms = 8;
  // A Stream::legacy_operations that is none.
  static constexpr uint64_t kWaitsForLegacy = ~uint64_t{0};
  // A Device::followed that no agent wants: bits of groups that no GPU has.
  static constexpr uint64_t kNeverFollowed = ~uint64_t{0};

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
      return device == nullptr || !device->legacy.is_used.load(std::memory_order_acquire)
                 ? nullptr
                 : &device->legacy;
    }
    Entry& entry = table_[place_of(handle)];
    return entry.handle.load(std::memory_order_acquire) == reinterpret_cast<uintptr_t>(handle) &&
                   entry.stream.is_used.load(std::memory_order_acquire)
               ? &entry.stream
               : nullptr;
  }
  // How many streams are looked at when all are to move.
  uint32_t listed() const { return listed_.load(std::memory_order_relaxed); }
  // Something is put into the stream for the first time.
  void note_used(Stream& stream);
  void on_created(CUstream handle);
  void before_destroy(CUstream handle);  // before the driver destroys its home
  void on_retained(CUdevice device, CUcontext primary);
  // Before the driver's call. `is_reset`: the context ends whatever the program's count is.
  void before_release(CUdevice device, bool is_reset);
  // Contexts beside the primary ones have come (+1) or gone (-1). While there are any, no partition
  // and no stand-in is made.
  void count_other_contexts(int more) {
    if (other_contexts_.fetch_add(more, std::memory_order_relaxed) + more == 0)
      forget_unknown_captures();
  }

  // From now on a part of the program reaches the driver past the shim (driver/bypass.h): all
  // streams go home behind their work, for good. One that another thread uses at this moment goes
  // with its next launch.
  void note_bypass();

  // --- one use of a stream: stream_use.h ---

  // Returns true if the stream can be used as it is: it is where it should be, need not wait for
  // the legacy stream, and the use is not refused.
  bool is_settled(const Stream& stream, Use use) const;
  // Returns true if the stream has waited for all legacy work for which it has to.
  static bool has_waited(const Stream& stream) {
    return stream.kind.load(std::memory_order_relaxed) != Stream::Kind::kBlocking ||
           stream.legacy_operations.load(std::memory_order_relaxed) ==
               stream.device->legacy.legacy_operations.load(std::memory_order_acquire);
  }
  // The call is made. The legacy stream has to wait for what it put into a blocking stream, and
  // streams that are away for what it put into the legacy stream. A stream that leaves home after
  // this found none away leaves its place behind the operation, by the driver's own order.
  [[gnu::always_inline]] static void end_use(Stream& stream) {
    const Stream::Kind kind = stream.kind.load(std::memory_order_relaxed);
    const bool is_legacy = kind == Stream::Kind::kLegacy;
    if (!is_legacy && kind != Stream::Kind::kNonBlocking &&
        !stream.is_dirty.load(std::memory_order_relaxed))
      note_dirty(stream);
    stream.users.fetch_sub(1, std::memory_order_seq_cst);  // and nothing of the above comes later
    if (is_legacy && stream.device->away.load(std::memory_order_seq_cst) != 0)
      stream.legacy_operations.fetch_add(1, std::memory_order_release);
  }
  // After work was put into a thread's own default stream at home, by that thread. The event behind
  // the work lets other threads ask whether it is done; with one such stream the legacy stream
  // answers that as well.
  void mark(Stream& stream) {
    if (stream.device->own_streams.load(std::memory_order_relaxed) > 1) return record_mark(stream);
    stream.is_unmarked.store(true, std::memory_order_relaxed);
  }

  // --- moves.cc, announced.cc ---

  // Takes the stream, and with it all others, to where the agent wants the process.
  void before_launch(Stream& stream);
  // Counts a launch at home, or in a stream that the shim leaves alone, if a partition is wanted.
  void count_at_home(const Device& device) const;
  void count_unknown_launch();
  // The host has waited for some work of the current context. What the agent wants or has announced
  // is made if nothing is in its way. REQUIRES: the caller uses no stream.
  void after_wait() {
    bool is_due = false;  // asking for the current context costs more than to look at all devices
    for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;)
      is_due |= is_due_after_wait(devices_[i]);
    if (__builtin_expect(is_due, 0)) look_after_wait();
  }
  // Every kLaunchesPerLook launches of a thread: milestones are due, and the slot may be another.
  void look_up();

  // --- legacy.cc. REQUIRES: the caller is one of the stream's users ---

  // False: it is a query, and something that comes before the legacy stream's work has not ended.
  // Sets `has_passed_capture` if it left out work before a capture that is not over.
  bool order_with_legacy(Stream& stream, Use use, bool& has_passed_capture);
  // What is put in line at home later runs after its work. False: the driver has refused that.
  bool home_waits(Stream& stream);
  void waits_for_home(Stream& stream);  // and the other way round

  // --- captures.cc ---

  // Moves the streams of its device to where graphs are captured, except those in use and those
  // into which nothing was put yet. REQUIRES:
  // the caller is not one of the stream's users; a per-thread stream is the caller's own.
  void before_capture(Stream& stream);
  void begin_capture(Stream& stream);
  // `begin` is the driver's call, which begins it. Meanwhile no legacy work is put behind what the
  // stream has: an event for that would be one of the capture already.
  template <class Begin>
  CUresult begin_capture(Stream& stream, const Begin& begin) {
    const Inside inside;  // what a tool does in the driver's call is left alone
    const Locked locked(stream.device->gathering);
    const CUresult result = begin();
    if (result == CUDA_SUCCESS) begin_capture(stream);
    return result;
  }
  void end_capture(Stream& stream);
  // The same for a stream that the shim leaves alone: streams that it moves may join its capture.
  void begin_capture(CUstream unknown);
  void end_capture(CUstream unknown);
  // The event was recorded in the stream (null: one that the shim leaves alone) while one captured.
  void note_recorded(const Stream* stream, CUevent event);
  // Before the stream waits for the event, by which it may join a capture: it goes to where the
  // process captures, if the event is one of a capture. REQUIRES: the caller is not one of its
  // users.
  void before_joining(Stream& stream, CUevent event);
  // While any stream captures: ends captures of threads' own default streams whose threads have
  // ended, as nobody else can.
  void end_left_captures();
  // The context of a conditional node and of its handle, of which the program names the primary one
  // or (null) the current one: that in which the streams of its device capture. Where none does the
  // graph is built by hand, in the primary context; what it runs may be captured, at home from now
  // on.
  CUcontext context_for_condition(CUcontext given);
  bool is_any_capturing() const { return captures_.load(std::memory_order_relaxed) != 0; }
  bool is_capturing(const Stream& stream) const;
  // What the driver would answer to a call of the legacy stream while a blocking stream captures. A
  // stand-in is not blocking, so the driver does not. With `ends_captures` the captures become
  // invalid, as by an operation. REQUIRES: the caller is one of the stream's users.
  CUresult refusal_of(const Stream& stream, bool ends_captures);
  // The same for a wait for a whole context (null: the current one): the driver looks at the
  // streams of that context alone, and stand-ins belong to others.
  CUresult refusal_of_wait(CUcontext context);
  // --- for graphs/: rest.cc, room.cc ---

  // Returns true if nothing of the stream runs; false also while any stream captures, when it must
  // not be asked, or another thread uses it.
  bool is_empty(Stream& stream);
  // Returns true if graphs were launched in streams that were away, on any device.
  bool has_graphs() const {
    bool is_any = false;
    for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;)
      is_any |= devices_[i].has_graphs.load(std::memory_order_acquire);
    return is_any;
  }
  // `left` waits for all that is in line in the stream. False: it cannot, as the stream has ended,
  // captures, or is at home and the legacy stream or another thread's own.
  bool hand_over(Stream& stream, CUevent event);
  // Returns true if something runs at a place where the stream was before.
  bool is_leaving(Stream& stream) const;
  // Before the stream ends, or begins or joins a capture: `left` waits for the graphs that were
  // launched in it.
  void leave_graphs(Stream& stream);
  // The device of a primary context (null: of the current one); null: it is none.
  Device* device_in(CUcontext context) {
    return context == nullptr ? current_device() : device_of(context);
  }
  template <class Visit>
  void for_each_used(Device& device, const Visit& visit);
  // The context of that place; null: there is none.
  CUcontext context_of(Device& device, Partitions::Place place);
  // The place that has this context; -1: none of the device.
  int place_of(Device& device, CUcontext context);
  // From now on called before a partition goes, with its place, and with 0 before all of a device
  // go, under the device's lock. The partition stays where it returns false; all go in any case.
  using PlaceGone = bool (*)(Device& device, Partitions::Place place);
  void on_place_gone(PlaceGone call) { place_gone_.store(call, std::memory_order_release); }

  // Returns true if the stream is where the process captures. REQUIRES: the caller uses it.
  bool is_at_captures(const Stream& stream) const {
    return stream.place.load(std::memory_order_relaxed) == capture_place(*stream.device);
  }
  // A graph has got a kernel by hand, or another graph.
  void note_built_graph() { has_built_graphs_.store(true, std::memory_order_relaxed); }
  // For a stream that is away, and a graph that is not known (graphs/). Kernels that were not
  // captured run in the whole GPU in any case, so that the launch counts as one at home.
  bool launches_graphs_at_home(const Stream& stream) const {
    return has_built_graphs_.load(std::memory_order_relaxed) ||
           stream.device->captures_at.load(std::memory_order_relaxed) == 0;
  }

 private:
  struct alignas(64) Entry {  // what a launch looks at lies on its first line
    std::atomic<uintptr_t> handle;
    Stream stream;
  };

  static uint32_t place_of(CUstream handle) {
    return place_in_table<kTableSize>(reinterpret_cast<uintptr_t>(handle));
  }
  // streams.cc
  static Streams* make();
  Device* current_device();
  Device* device_of(CUcontext context);
  Stream* per_thread(Device& device);
  Stream* make_own(Device& device);
  Stream* inherit(Device& device);
  bool take_over(Stream& stream);
  void end_left_capture(Stream& stream);
  Entry* entry_of(CUstream handle);
  Entry* add_entry(CUstream handle);
  void add_to_list(Stream& stream);
  void take_off_list(Stream& stream);
  // lifetimes.cc
  void drop_stand_ins(Stream& stream);  // and its events; its place is home again
  void drop_spares(Device& device, Partitions::Place place);
  void leave_dirty(Stream& stream);
  void go_home();
  void bring_all_home();
  void after_captures();
  bool await_users(Stream& stream) const;
  bool is_free(Stream& stream);
  void forget_unknown();
  void settle_all();
  void find_in_slot(Device& device);
  void note_only_device();
  // moves.cc
  bool is_wanted_new(const Device& device) const;
  bool has_concern(const Device& device, uint32_t concerns) const {
    return (device.concerns.load(std::memory_order_relaxed) & concerns) != 0;
  }
  static void set_concern(Device& device, Concern concern, bool is_one);
  Partitions::Place target_of(const Device& device) const;
  void follow_wanted(Device& device);
  uint64_t try_to_follow(Device& device, bool may_hold);
  ShimFollows hindrance(Device& device, const Drain& drain, int place, uint64_t now);
  void note_hindered(Device& device, uint64_t now) const;
  bool is_hindered(const Device& device) const;
  void say(const Device& device, ShimFollows follows) const;
  void say_own_context(Device& device, CUdevice ordinal);
  void look_after_wait();
  void move(Stream& stream, bool to_capture);
  void go(Stream& stream, Partitions::Place target);
  void put(Stream& stream, Partitions::Place target);
  void bring(Stream& stream, Partitions::Place target);
  bool is_elsewhere(const Stream& stream) const;
  bool is_left_behind(Stream& stream, Partitions::Place target);
  void settle(Device& device);
  void settle_in_time(Device& device);
  void put_milestone(Stream& stream);
  void count_move(Device& device, Partitions::Place from, Partitions::Place to);
  bool put_behind(Stream& stream, CUstream from, CUstream to, CUstream asked);
  bool chain(Stream& stream, CUstream from, CUstream to);
  bool chain(Stream& stream, CUevent& event, CUstream from, CUstream to);
  bool make_stand_in(Stream& stream, Partitions::Place place);
  void adopt(Stream& stream, Partitions::Place place);
  // rest.cc, room.cc. REQUIRES: device.lock is held, if they take a device.
  bool hold_at_rest(Device& device);
  void let_go(Device& device);
  void put_held(Device& device, Partitions::Place place);
  uint32_t count_busy(Device& device);
  bool is_at_rest(Stream& stream) const;
  bool has_stand_ins(Device& device, Partitions::Place place);
  bool make_stand_ins(Device& device, Partitions::Place place);
  bool make_left(Device& device);
  bool record_behind(Stream& stream, CUevent event);
  static void note_left(Stream& stream, uint32_t graphs);
  void record_mark(Stream& stream);
  void note_left_work(Stream& stream);
  bool may_run_left(Device& device, Partitions::Place place) const;
  bool make_room(Device& device);
  bool is_idle(Device& device, Partitions::Place place) const;
  bool lets_go(Device& device, Partitions::Place place) const {
    const PlaceGone call = place_gone_.load(std::memory_order_acquire);
    return call == nullptr || call(device, place);
  }
  // announced.cc
  bool is_announced_new(const Device& device) const {
    const int gpu = device.gpu;  // another thread may learn meanwhile that it is not shared
    bool is_new = false;
    for (uint32_t i = 0; gpu >= 0 && i < kShimSoon; ++i)
      is_new |= slot().soon[gpu].sets[i].load(std::memory_order_relaxed) !=
                device.prepared[i].load(std::memory_order_relaxed);
    return is_new;
  }
  bool is_due_after_wait(const Device& device) const {
    return is_announced_new(device) || is_wanted_new(device) ||
           has_concern(device, kStreamLacks | kStreamLate) || device.milestones.is_watching();
  }
  void make_announced(Device& device);
  bool is_prepared(Device& device, uint64_t set);
  static void forget_prepared(Device& device);
  // legacy.cc, captures.cc
  static void note_dirty(Stream& stream);
  static Stream* take_off_dirty(Device& device, Stream& stream);
  static void leave_dirty_list(Stream& stream);
  bool gather(Stream& legacy, Use use, bool& has_passed_capture);
  bool has_ended(Stream& stream);
  bool forget_unknown_capture(CUstream stream);
  void forget_unknown_captures();
  bool may_be_captured(CUevent event) const;
  void count_capture();
  static void note_captured(const Stream& stream);
  bool is_any_refused(const Device& device, bool is_only_of_blocking, bool ends_captures);
  Partitions::Place capture_place(const Device& device) const;

  const Driver* driver_;
  bool is_driver_newer_;            // than hooks.def: then no partition is made
  std::atomic<uint32_t> captures_;  // streams that capture a graph; while any does, none moves
  std::atomic<uint64_t> next_left_capture_ns_;  // when to look for those of threads that have ended
  std::atomic<CUstream> unknown_captures_[kMostUnknownCaptures];  // those that are left alone
  // Events of captures, so many so far; those of captures that are not over are not before since_.
  std::atomic<CUevent> captured_events_[kMostCapturedEvents];
  std::atomic<uint32_t> captured_count_, captured_since_;
  std::atomic<int> other_contexts_;
  std::atomic<bool> has_built_graphs_;
  std::atomic<PlaceGone> place_gone_;        // null: nobody wants to know
  std::atomic<const ShimSlot*> known_slot_;  // in which the devices were found
  std::atomic<uint32_t> known_gpus_;         // that were in it then
  std::atomic<Device*> only_device_;  // with a primary context; null: there are none or several
  // Streams that the table lacks, and kForGood where the driver is bypassed: then all are at home.
  std::atomic<uint32_t> unknown_;
  std::atomic<Stream*> all_;      // a list of all but the legacy streams that live
  std::atomic<uint32_t> listed_;  // how many they are
  SpinLock list_lock_;            // for changes of that list
  SpinLock table_lock_;           // for new entries of table_ and for only_device_
  Device devices_[kMostDevices];
  std::atomic<int> device_count_;  // 1 + the highest number of those with a primary context
  Entry table_[kTableSize];
};

[[gnu::always_inline]] inline bool Streams::is_wanted_new(const Device& device) const {
  const int gpu = device.gpu;  // once: see is_announced_new()
  return gpu >= 0 && slot().gpus[gpu].wanted.load(std::memory_order_relaxed) !=
                         device.followed.load(std::memory_order_relaxed);
}

[[gnu::always_inline]] inline Partitions::Place Streams::target_of(const Device& device) const {
  return unknown_.load(std::memory_order_relaxed) != 0
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
  if (leaves_no_work(use)) return true;
  if (!has_waited(stream)) return false;
  return use != Use::kLaunch ||
         (stream.place.load(std::memory_order_relaxed) == target_of(device) &&
          device.concerns.load(std::memory_order_relaxed) == 0 && !is_wanted_new(device));
}

// Visits each stream of the device into which something was put, and the legacy stream.
template <class Visit>
void Streams::for_each_used(Device& device, const Visit& visit) {
  for (Stream* each = all_.load(std::memory_order_acquire);; each = each->next) {
    Stream& stream = each == nullptr ? device.legacy : *each;
    if (stream.device == &device && stream.is_used.load(std::memory_order_acquire) &&
        stream.kind.load(std::memory_order_acquire) != Stream::Kind::kNone)
      visit(stream);
    if (each == nullptr) return;
  }
}

}  // namespace gpushare::shim
