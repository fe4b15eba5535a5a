// SPDX-License-Identifier: Apache-2.0
// A driver for the shim's own sources (intercept/shim/driver/driver.h) that runs nothing. It knows
// for each piece of work what the hardware would finish before it, which is no more than CUDA
// promises, and what a question has found to have ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "intercept/shim/driver/driver.h"
#include "tests/support/stepped.h"

namespace gpushare::shim {

inline constexpr size_t kMostWork = 4096;

// A set of pieces of work, by their numbers.
class Work {
 public:
  void add(size_t number) { bits_.at(number / 64) |= uint64_t{1} << number % 64; }
  bool has(size_t number) const { return (bits_.at(number / 64) >> number % 64 & 1) != 0; }
  bool has_any_of(const Work& other) const {
    for (size_t i = 0; i < bits_.size(); ++i)
      if ((bits_[i] & other.bits_[i]) != 0) return true;
    return false;
  }
  void add(const Work& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }

 private:
  std::array<uint64_t, kMostWork / 64> bits_{};
};

// The order of work that CUDA promises. Any thread.
class FakeGpu {
 public:
  struct Queue {
    bool is_blocking = false;
    Work finished{};  // finished before the work that is put into it next
  };

  // Puts a piece of work into the stream and returns what is finished before it.
  // `more`: what it also waits for.
  Work put(CUstream stream, size_t number, const Work& more = {}) {
    const Lock lock(*this);
    Queue& queue = queue_of(stream);
    queue.finished.add(implicit(stream));
    queue.finished.add(more);
    Work before = queue.finished;
    before.add(done_);
    queue.finished.add(number);
    return before;
  }
  // What is finished before that which is put into the stream next.
  Work before(CUstream stream) {
    const Lock lock(*this);
    Work before = queue_of(stream).finished;
    before.add(implicit(stream));
    before.add(done_);
    return before;
  }
  // From now on, until it ends, events and waits in the stream are parts of a graph.
  void begin_capture(CUstream stream) {
    const Lock lock(*this);
    capturing_.insert(stream);
  }
  void end_capture(CUstream stream) {
    const Lock lock(*this);
    capturing_.erase(stream);
  }
  bool is_capturing(CUstream stream) {
    const Lock lock(*this);
    return capturing_.contains(stream);
  }
  // Whether the stream, or what is before the event, has ended. If so, all that comes is later.
  bool is_done(CUstream stream) {
    const Lock lock(*this);
    if (capturing_.contains(stream)) return false;
    Work asked = queue_of(stream).finished;
    // What the legacy stream has to end before the next piece of work is not in the stream.
    if (is_legacy(stream)) asked.add(implicit(stream));
    return has_ended(asked);
  }
  bool is_done(CUevent event) {
    const Lock lock(*this);
    return has_ended(events_.at(event));
  }
  // The host waits for the event.
  void finish(CUevent event) {
    const Lock lock(*this);
    done_.add(events_.at(event));
  }
  // What has ended, as far as somebody has asked or waited.
  Work done() {
    const Lock lock(*this);
    return done_;
  }
  std::function<bool()> is_busy{};  // whether a question finds work; empty: it never does
  Work running{};                   // that has not ended, whatever is_busy says
  // The calling thread's own default stream, by a handle that no other thread's has.
  CUstream own() {
    const Lock lock(*this);
    return own_of_thread();
  }
  // Streams that were created and not destroyed.
  size_t created() {
    const Lock lock(*this);
    return created_;
  }
  CUstream create(bool is_blocking) {
    const Lock lock(*this);
    ++created_;
    const auto handle = reinterpret_cast<CUstream>(next_ += 64);
    queues_[handle].is_blocking = is_blocking;
    return handle;
  }
  // A blocking stream with a handle that another one had before it was destroyed.
  void create_again(CUstream handle) {
    const Lock lock(*this);
    ++created_;
    queues_[handle].is_blocking = true;
  }
  // The stream's work goes on.
  void destroy(CUstream stream) {
    const Lock lock(*this);
    if (queue_of(stream).is_blocking) left_.add(queue_of(stream).finished);
    queues_.erase(stream);
    --created_;
  }
  void record(CUevent event, CUstream stream) {
    const Lock lock(*this);
    Work& told = events_[event] = {};
    if (capturing_.contains(stream)) return;
    told = queue_of(stream).finished;
    told.add(implicit(stream));
  }
  void wait(CUstream stream, CUevent event) {
    const Lock lock(*this);
    Queue& queue = queue_of(stream);
    if (!capturing_.contains(stream)) queue.finished.add(events_.at(event));
  }
  CUevent new_event() {
    const Lock lock(*this);
    const auto handle = reinterpret_cast<CUevent>(next_ += 64);
    events_[handle];
    return handle;
  }
  CUgreenCtx new_green() {
    const Lock lock(*this);
    return reinterpret_cast<CUgreenCtx>(next_ += 64);
  }
  bool is_blocking(CUstream stream) {
    const Lock lock(*this);
    return queue_of(stream).is_blocking;
  }

 private:
  bool has_ended(const Work& asked) {
    if (asked.has_any_of(running) || (is_busy && is_busy())) return false;
    done_.add(asked);
    return true;
  }
  CUstream own_of_thread() {
    static std::atomic<uint64_t> threads{0};
    static thread_local const uint64_t number = ++threads;
    const auto [own, is_new] = own_.try_emplace(number);
    if (is_new) {
      own->second = reinterpret_cast<CUstream>(next_ += 64);
      queues_[own->second].is_blocking = true;
    }
    return own->second;
  }
  Queue& queue_of(CUstream stream) {
    if (stream == GS_CU_STREAM_PER_THREAD) stream = own_of_thread();
    return queues_.at(stream == nullptr ? GS_CU_STREAM_LEGACY : stream);
  }
  static bool is_legacy(CUstream stream) {
    return stream == nullptr || stream == GS_CU_STREAM_LEGACY;
  }
  // What the driver's rules of the legacy stream put before the next piece of work.
  Work implicit(CUstream stream) {
    Work work;
    if (is_legacy(stream)) {
      work.add(left_);
      for (const auto& [handle, queue] : queues_)
        if (queue.is_blocking) work.add(queue.finished);
    } else if (queue_of(stream).is_blocking) {
      work.add(queues_.at(GS_CU_STREAM_LEGACY).finished);
    }
    return work;
  }

  // The one who holds it is not stepped.
  class Lock {
   public:
    explicit Lock(FakeGpu& gpu) : lock_(gpu.mutex_) {}

   private:
    const Stepping::Paused paused_;
    const std::lock_guard<std::mutex> lock_;
  };

  std::mutex mutex_;  // protects what follows
  std::map<CUstream, Queue> queues_{{GS_CU_STREAM_LEGACY, {}}};
  std::map<uint64_t, CUstream> own_;  // by thread; a thread's number never comes again
  std::set<CUstream> capturing_;
  size_t created_ = 0;
  std::map<CUevent, Work> events_;
  Work done_;  // of which a question has said so
  Work left_;  // of blocking streams that were destroyed
  uintptr_t next_ = 0x10000;
};

// The GPU behind driver(). There is one at a time.
extern std::unique_ptr<FakeGpu> the_gpu;
// What other threads do between two calls that the shim makes to the driver; empty: nothing.
extern std::function<void()> other_threads;
// Called before a stream is asked whether it is empty, or an event is recorded in one, by any
// thread; empty: nothing. They may change only while no other thread calls the driver.
extern std::function<void(CUstream)> before_question, before_recording;
// What it answers when an event is to be recorded, as in a capture that is invalid.
extern CUresult record_answer;
// How often the shim began or ended to ask for streams and events.
extern std::atomic<size_t> mode_changes;
// The stream whose capture was ended last.
extern CUstream ended_capture;
// What it says of itself.
extern int driver_version;
// The primary context of the one device, and the one that is current in all threads.
extern const CUcontext kContext;
extern CUcontext current_context;

}  // namespace gpushare::shim
