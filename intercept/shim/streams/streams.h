// SPDX-License-Identifier: Apache-2.0
// Streams that move between the partitions of a GPU while the program that holds them notices
// nothing. Only in processes with the feature kShimPartitions.
//
// What a program holds is the driver's own stream, its **home** in the whole GPU. In a partition it
// has a stand-in, a stream of the partition's green context. Every call that names the stream goes
// to where it is now, its **place**. It changes its place at a launch (is_launch() of kinds.h),
// when the agent wants another partition than the one it is in: an event is recorded at the old
// place, the new one waits for it. Nothing is drained, nothing is cut; the stream remains one
// queue.
//
// A partition that is not made yet, and a stand-in, is made when nothing of the process runs on the
// device (streams_rest.cc): a launch that finds something running waits for its end, kLongestRestNs
// at most, and then goes to the old place; after kMostRestNs of such waits there is a pause. So a
// program whose kernels wait for its own next launch is slowed for a moment and goes on. What the
// agent has announced (ShimSoon) is made before that, when the program itself has waited and
// nothing runs (streams_soon.cc): then no launch waits for it.
//
//   - Legacy default stream. Stand-ins know nothing of the driver's implicit order, so we make it,
//     with events: a legacy operation waits for all work of blocking streams that it has not waited
//     for yet, an operation of a blocking stream for the legacy work so far. Among streams that are
//     at home the driver does it.
//   - Calls without a stream run at home; the place waits for home and home for the place. Copies
//     and fills on the GPU are spared that where it makes no difference (async_forms.h).
//   - A launch that a partition is too small for (cooperative, clusters) runs at home likewise.
//   - While a stream captures a graph none moves. Kernels of a graph run in the partition in which
//     they were captured, wherever the graph is launched: the driver has no way to move them, and
//     updates one graph by another only where both were captured in the same one. So all graphs of
//     a process are captured in the partition of its first: streams go there for it, and back
//     after.
//   - Streams of other contexts than a device's primary one stay where they are.
//   - Only its thread can ask whether a thread's own default stream at home is done. So it records
//     an event behind each of its calls, but only once a second thread has such a stream too: in a
//     program with one, and of what was before the second, the legacy stream's answer is as good:
//     it is not done before all blocking streams at home are.
//
// A move needs the stream for itself: a thread that is using it at that moment (`users`) makes the
// other one's launch go to the old place, and the next launch tries again. No call ever waits for
// another one's, but the end of a stream for those who are looking at it, and an operation of the
// legacy stream for another one that is being put behind the streams that are away. Any thread; a
// child of fork() starts anew.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/kinds.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/streams/partitions.h"

namespace gpushare::shim {

class SpinLock {
 public:
  void lock();
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_;
};

class Locked {
 public:
  explicit Locked(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  SpinLock& lock_;
};

// Only where nobody holds it.
class TryLocked {
 public:
  explicit TryLocked(SpinLock& lock) : lock_(lock), is_held_(lock.try_lock()) {}
  ~TryLocked() {
    if (is_held_) lock_.unlock();
  }
  TryLocked(const TryLocked&) = delete;
  TryLocked& operator=(const TryLocked&) = delete;
  bool is_held() const { return is_held_; }

 private:
  SpinLock& lock_;
  const bool is_held_;
};

struct Device;

// Zero is one that is not in use.
struct Stream {
  enum class Kind : uint8_t { kNone, kLegacy, kBlocking, kNonBlocking };
  static constexpr uint32_t kMoving = 0x80000000;

  std::atomic<uint32_t> users;  // calls that are using it, or kMoving
  std::atomic<Partitions::Place> place;
  std::atomic<Kind> kind;
  std::atomic<bool> began_capture;
  // Legacy: operations so far, of those that an away one has to wait for. Blocking: how many of
  // them it has waited for.
  std::atomic<uint64_t> legacy_operations;
  // Blocking: it has work that the legacy stream has not waited for.
  std::atomic<bool> is_dirty;
  bool is_unmarked;     // per-thread: at home there is work that `event` is not behind
  bool is_held;         // by hold_at_rest(); under the device's lock
  SpinLock event_lock;  // held from a recording of `event` to the wait for it
  CUevent event;
  Device* device;
  Stream* next;                                     // in the list of all
  std::atomic<CUstream> at[1 + Partitions::kMost];  // null: no stand-in there yet

  // REQUIRES: the caller is one of the users, or nobody else can be. A wait is not; the place that
  // it is told stays for kLeastIdleNs after the stream has left it.
  CUstream physical() const {
    return at[place.load(std::memory_order_acquire)].load(std::memory_order_acquire);
  }
  // A thread's own default stream.
  bool is_own_at_home() const {
    return place.load(std::memory_order_relaxed) == 0 &&
           at[0].load(std::memory_order_relaxed) == GS_CU_STREAM_PER_THREAD;
  }
};

// One of another thread's streams, which cannot end while this lives.
class Look {
 public:
  explicit Look(Stream& stream) : stream_(stream) {
    stream.users.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Look() { stream_.users.fetch_sub(1, std::memory_order_release); }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  Stream::Kind kind() const { return stream_.kind.load(std::memory_order_seq_cst); }

 private:
  Stream& stream_;
};

struct alignas(64) Device {
  std::atomic<CUcontext> primary;  // null: not seen yet
  CUdevice ordinal;
  uint32_t retains;                // by the program; under `lock`
  int gpu;                         // its place in the slot; -1: it is not there
  std::atomic<uint64_t> followed;  // the wish that `target` was made from
  std::atomic<Partitions::Place> target;
  std::atomic<bool> lacks;            // a stream has no stand-in in `target`
  std::atomic<uint32_t> away;         // streams that are not at home, or about to leave it
  std::atomic<uint32_t> own_streams;  // threads' own default streams, ever
  // A blocking stream was destroyed with work that the legacy stream has not waited for: the home
  // of the legacy stream does.
  std::atomic<bool> has_left_work;
  // Streams in each partition; [0] is not kept.
  std::atomic<uint32_t> inhabitants[1 + Partitions::kMost];
  std::atomic<uint32_t> captured;  // a bit for each partition that kernels of a graph may be in
  // 1 + where graphs are captured; 0: none was.
  std::atomic<uint32_t> captures_at;
  // Of ShimSoon, what was made for all streams or cannot be; another value: look again.
  std::atomic<uint64_t> prepared[kShimSoon];
  SpinLock gathering;  // by the legacy stream, of who is dirty
  SpinLock lock;
  Partitions partitions;  // under `lock`, like all that follows
  uint64_t next_try_ns;   // when to look again whether a partition can make room
  uint64_t idle_since_ns[1 + Partitions::kMost];  // 0: it was not seen idle
  // Of launches, for the process to be at rest, since a partition was made: how long, and when to
  // wait again, after a pause that grows.
  uint64_t rest_waited_ns, rest_after_ns, rest_pause_ns;
  // Of what was announced: waits that have tried in vain, and when to try again.
  uint64_t soon_after_ns;
  uint32_t soon_tries;
  CUstream left;  // waits for the work of streams that were destroyed; null: there was none
  Stream legacy;
};

// What a call does with a stream. A launch moves it.
enum class Use : uint8_t { kLaunch, kOperation, kWait };

class Streams {
 public:
  static constexpr int kMostDevices = 16;
  // A partition that has been empty for so long may be dropped for another one.
  static constexpr uint64_t kLeastIdleNs = 1'000'000'000;
  static constexpr uint64_t kTryAgainNs = 50'000'000;
  // How long one launch waits for rest, all of them together, and then not, the first time and in
  // the end.
  static constexpr uint64_t kLongestRestNs = 10'000'000, kMostRestNs = 2'000'000'000,
                            kFirstRestPauseNs = 10'000'000'000,
                            kLongestRestPauseNs = 600'000'000'000;
  static constexpr unsigned kRestPollUs = 20;
  // Of announced sets: so many waits in a row try to make them, as a program may wait for one
  // stream after the other before it rests; then there is a pause. How many partitions leave room
  // for those that are wanted.
  static constexpr uint32_t kSoonTries = 16;
  static constexpr uint64_t kSoonPauseNs = 10'000'000;
  static constexpr int kMostWithAnnounced = Partitions::kMost / 2;
  static constexpr uint32_t kTableSize = 4096;  // streams at one time, at most

  // Null where the feature is off, or the driver cannot.
  static Streams* get() {
    Process& process = this_process();
    if ((process.features.load(std::memory_order_relaxed) & kShimPartitions) == 0) return nullptr;
    Streams* there = process.streams.load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make();
  }

  // The stream that the handle means for the calling thread. Null: one that we leave alone.
  Stream* find(CUstream handle, Flavor flavor);
  // The same without a call of another function; null also where find() would have to look further.
  // The legacy stream is that of the only device, whichever context is current: for who leaves it
  // where it is.
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
  // Nothing is to be done before it is used, and the use is not refused: it is where it should be,
  // and need not wait for the legacy stream.
  bool is_settled(const Stream& stream, Use use) const;

  void on_created(CUstream handle);
  // Before the driver destroys its home.
  void before_destroy(CUstream handle);
  void on_retained(CUdevice device, CUcontext primary);
  // Before the driver's call. `is_reset`: whatever the count is.
  void before_release(CUdevice device, bool is_reset);

  // The call is made. What it put into a blocking stream the legacy stream has to wait for, and
  // what it put into the legacy stream those have to wait for that are away. A stream that leaves
  // home after this found none away leaves its place behind the operation, by the driver's own
  // order.
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

  void move_to_target(Stream& stream);
  // After work was put into a thread's own default stream at home. The caller is its thread.
  void mark(Stream& stream) {
    if (stream.device->own_streams.load(std::memory_order_relaxed) > 1) return record_mark(stream);
    stream.is_unmarked = true;
  }
  // REQUIRES: the caller is one of the stream's users; here and below.
  void order_with_legacy(Stream& stream, Use use);
  // What the driver would say to a call of the legacy stream while a blocking one captures, and the
  // end of those captures that an operation would be. A stand-in is not blocking, so it does not.
  CUresult refusal_of(const Stream& stream, bool ends_captures);
  // The same of a wait for a whole context, null: the current one. The driver looks at the streams
  // of that context alone, and stand-ins have others.
  CUresult refusal_of_wait(CUcontext context);
  // What is put in line at home after it runs after the stream's work; and the other way round.
  void home_waits(Stream& stream);
  void waits_for_home(Stream& stream);

  // The host has waited for some work of the current context. REQUIRES: the caller uses no stream.
  void after_wait() {
    bool is_new = false;  // asking for the current context costs more than to look at all devices
    for (int i = device_count_.load(std::memory_order_acquire); i-- > 0;)
      is_new |= is_announced_new(devices_[i]);
    if (__builtin_expect(!is_new, 1)) return;
    Device* device = current_device();
    if (device != nullptr && is_announced_new(*device)) make_announced(*device);
  }

  // Contexts beside the primary ones; while there are any, nothing is made.
  void count_other_contexts(int more) {
    other_contexts_.fetch_add(more, std::memory_order_relaxed);
  }
  void note_child_graph() { has_child_graphs_.store(true, std::memory_order_relaxed); }
  // Of a stream that is away. Kernels of a graph that was not captured run in the whole GPU anyhow.
  // A graph within a graph, launched into a partition's stream: the stream is done before the graph
  // is, now and then (H200, driver 580.159.04; the scene of that name in tests/conformance).
  bool launches_graphs_at_home(const Stream& stream) const {
    return has_child_graphs_.load(std::memory_order_relaxed) ||
           stream.device->captures_at.load(std::memory_order_relaxed) == 0;
  }

  // Brings the streams of its device, but those that somebody is using, to where graphs are
  // captured. REQUIRES: the caller is not one of the stream's users; it is the caller's own if it
  // is per-thread.
  void before_capture(Stream& stream);
  // Any stream of the process: its threads may be forbidden what waits.
  bool is_any_capturing() const { return captures_.load(std::memory_order_relaxed) != 0; }
  void begin_capture(Stream& stream);
  void end_capture(Stream& stream);

 private:
  struct alignas(64) Entry {  // what a launch looks at lies on its first line
    std::atomic<uintptr_t> handle;
    Stream stream;
  };

  static uint32_t place_of(CUstream handle) {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(handle) >> 4) * 0x9E3779B1);
  }
  static Streams* make();
  Device* current_device();
  Stream* per_thread(Device& device);
  Entry* entry_of(CUstream handle);
  Entry* add_entry(CUstream handle);
  Device* device_of(CUcontext context);
  void follow_wish(Device& device);
  bool try_to_follow(Device& device, uint64_t& begin_ns);
  void record_mark(Stream& stream);
  // streams_rest.cc. REQUIRES: device.lock is held.
  bool hold_at_rest(Device& device);
  void let_go(Device& device);
  static bool may_wait_for_rest(Device& device, uint64_t now, uint64_t& begin_ns);
  bool is_at_rest(const Stream& stream) const;
  bool has_stand_ins(const Device& device, Partitions::Place place) const;
  bool make_stand_ins(Device& device, Partitions::Place place);
  void prepare(Stream& stream);
  void note_left_work(Stream& stream);
  bool make_left(Device& device);
  // streams_soon.cc
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
  void say(const Device& device, ShimFollows follows) const;
  Partitions::Place target_of(const Device& device) const;
  bool make_room(Device& device);
  bool is_idle(Device& device, Partitions::Place place) const;
  void count_move(Device& device, Partitions::Place from, Partitions::Place to);
  bool chain(Stream& stream, CUstream from, CUstream to);
  // With its event; its place is home again.
  void drop_stand_ins(Stream& stream);
  bool make_stand_in(Stream& stream, Partitions::Place place);
  void gather(Stream& legacy);
  bool is_capturing(const Stream& stream) const;
  bool is_any_refused(const Device& device, bool is_only_of_blocking, bool ends_captures);
  void move(Stream& stream, bool to_capture);
  Partitions::Place capture_place(const Device& device) const;
  void add_to_list(Stream& stream);
  void note_only_device();
  bool is_wish_new(const Device& device) const;

  const Driver* driver_;
  std::atomic<uint32_t> captures_;
  std::atomic<int> other_contexts_;
  std::atomic<bool> has_child_graphs_;
  std::atomic<Device*> only_device_;  // with a primary context; null: there are none or several
  std::atomic<bool> is_overfull_;     // there is a stream that we do not know: all stay at home
  std::atomic<Stream*> all_;          // every stream but the legacy ones; only ever longer
  SpinLock table_lock_;
  Device devices_[kMostDevices];
  std::atomic<int> device_count_;  // 1 + the highest number of those with a primary context
  Entry table_[kTableSize];
};

[[gnu::always_inline]] inline bool Streams::is_wish_new(const Device& device) const {
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
          !device.lacks.load(std::memory_order_relaxed) && !is_wish_new(device));
}

// False: no stream of this process ever moves.
[[gnu::always_inline]] inline bool may_move() {
  return (this_process().features.load(std::memory_order_relaxed) & kShimPartitions) != 0;
}

// A stream while a call uses it. Of a launch or a wait that is settled, nothing is called for it.
class StreamUse {
 public:
  [[gnu::always_inline]] StreamUse(CUstream handle, Flavor flavor, Use use)
      : handle_(handle), physical_(handle) {
    if (use == Use::kOperation || __builtin_expect(!take_settled(flavor, use), 0))
      take(flavor, use);
  }
  [[gnu::always_inline]] ~StreamUse() {
    if (!is_held_) return;
    if (__builtin_expect(is_to_be_marked_, 0)) Streams::get()->mark(*stream_);
    Streams::end_use(*stream_);
  }
  StreamUse(const StreamUse&) = delete;
  StreamUse& operator=(const StreamUse&) = delete;

  // What to give to the driver.
  // REQUIRES: the caller is one of the users, or nobody else can be. A wait is not; the place that
  // it is told stays for kLeastIdleNs after the stream has left it.
  CUstream physical() const { return physical_; }
  // Not SUCCESS: what is to be said instead of making the call.
  CUresult refusal(bool ends_captures = true) const {
    return stream_ == nullptr || is_settled_ ? CUDA_SUCCESS
                                             : Streams::get()->refusal_of(*stream_, ends_captures);
  }
  CUstream handle() const { return handle_; }
  Stream* stream() const { return stream_; }
  bool is_away() const { return is_held_ && physical_ != handle_; }

  // Runs `call` with the stream's home.
  template <class Call>
  CUresult at_home(const Call& call) {
    if (!is_away()) return call(handle_);
    Streams& all = *Streams::get();
    all.home_waits(*stream_);
    const CUresult result = call(handle_);
    all.waits_for_home(*stream_);
    return result;
  }

 private:
  // The host waits for what is in line now, and keeps nobody from going on: it need not be a user.
  [[gnu::always_inline]] bool take_settled(Flavor flavor, Use use) {
    Streams* const all = this_process().streams.load(std::memory_order_acquire);
    Stream* const stream = all == nullptr ? nullptr : all->find_at_once(handle_, flavor);
    if (stream == nullptr || !all->is_settled(*stream, use)) return false;
    if (use != Use::kWait &&
        __builtin_expect(
            (stream->users.fetch_add(1, std::memory_order_acquire) & Stream::kMoving) != 0, 0)) {
      stream->users.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    if (stream->place.load(std::memory_order_acquire) != 0) {
      CUstream const there = stream->physical();
      // A wait that has come too late: that place is gone. Or the legacy stream has just left home.
      if (there == nullptr || stream == &stream->device->legacy) {
        if (use != Use::kWait) stream->users.fetch_sub(1, std::memory_order_relaxed);
        return false;
      }
      physical_ = there;
    }
    is_held_ = use != Use::kWait;
    stream_ = stream;
    is_settled_ = true;
    return true;
  }
  void take(Flavor flavor, Use use);

  const CUstream handle_;
  CUstream physical_;
  Stream* stream_ = nullptr;
  bool is_held_ = false, is_settled_ = false, is_to_be_marked_ = false;
};

}  // namespace gpushare::shim
