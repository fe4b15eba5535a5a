// SPDX-License-Identifier: Apache-2.0
// One stream of the program: its home, which is the driver's own stream in the whole GPU, its
// stand-ins, one for each partition that it has been in, and its place, which is the one of these
// that calls use now. Any thread; a call that uses the stream counts itself in `users`, and a
// thread that changes the place first puts kMoving there, which succeeds only while nobody uses it.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/link/spin_lock.h"
#include "intercept/shim/streams/partitions.h"

namespace gpushare::shim {

struct Device;

// Zero bytes are a stream that is not in use.
struct Stream {
  enum class Kind : uint8_t { kNone, kLegacy, kBlocking, kNonBlocking };
  static constexpr uint32_t kMoving = 0x80000000;

  std::atomic<uint32_t> users;  // calls that are using it now; kMoving is added by its mover
  std::atomic<Partitions::Place> place;
  std::atomic<Kind> kind;
  std::atomic<bool> began_capture;
  // The program has put something into it. Until then it has stand-ins only where a capture needed
  // them, and nobody asks whether it is empty.
  std::atomic<bool> is_used;
  // In the legacy stream: its operations so far, without those that the driver itself keeps in
  // order with all other streams. In a blocking stream: how many of them it has waited for.
  std::atomic<uint64_t> legacy_operations;
  std::atomic<bool> is_dirty;     // blocking: it has work that the legacy stream has not waited for
  bool is_listed;                 // in Device::dirty; protected by Device::listing
  std::atomic<bool> is_unmarked;  // per-thread: it has work at home, put there after `event`
  std::atomic<bool> is_leaving;   // its place before may still run what was there at `departure`
  bool is_held;                   // by hold_at_rest(); protected by the device's lock
  SpinLock event_lock;  // held from a recording of `event` until the wait for it is in line
  CUevent event;
  CUevent departure;  // behind the work at the place before; for is_leaving
  Device* device;
  // In the list of all streams; written under Streams::list_lock_. One that was taken off the list
  // keeps its `next`, for a thread that is looking at it.
  std::atomic<Stream*> next;
  Stream* previous;
  bool is_in_list;
  std::atomic<CUstream> at[1 + Partitions::kMost];  // by place; null: it has no stand-in there yet
  // Graphs that were launched while it was away, and how many of these nobody needs to ask for any
  // more (graphs/context_waits.h). Both only grow, also from one stream to the next at its address.
  std::atomic<uint32_t> graphs, graphs_seen;
  std::atomic<uint32_t> was_at;  // for is_leaving; bit n: what is before `departure` may run there
  Stream* next_dirty;            // in Device::dirty; protected by Device::listing
  Stream* next_own;              // in Device::own
  std::atomic<uint32_t> owner;   // a thread's own default stream: its number in the kernel; else 0
  std::atomic<bool> is_taken;    // it lives, or is being destroyed; else its entry is free
  // It has ended, and a thread that used it then is in its call still, or was ended in it: it keeps
  // its entry and its stand-ins.
  std::atomic<bool> is_left_in_use;

  // REQUIRES: the caller is one of the users, or no other thread can be one. A call that waits need
  // not be: the stream that it gets here stays valid for Streams::kLeastIdleNs after a move.
  CUstream physical() const {
    return at[place.load(std::memory_order_acquire)].load(std::memory_order_acquire);
  }
  // Returns true if this is a thread's own default stream and is at home.
  bool is_own_at_home() const {
    return place.load(std::memory_order_relaxed) == 0 &&
           at[0].load(std::memory_order_relaxed) == GS_CU_STREAM_PER_THREAD;
  }
};

// Keeps a stream of another thread from ending while this lives.
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

// Keeps other threads from using the stream while this lives, for some microseconds at most, unless
// one uses it already. Ask is_alone(). So no capture begins in it meanwhile: a stream that captures
// must not be asked whether it is empty, which would end the capture.
class Alone {
 public:
  explicit Alone(Stream& stream) : stream_(stream) {
    uint32_t nobody = 0;
    is_alone_ =
        stream.users.compare_exchange_strong(nobody, Stream::kMoving, std::memory_order_seq_cst);
  }
  ~Alone() {
    // Not a store of 0: other threads may have added themselves, and are about to see kMoving.
    if (is_alone_) stream_.users.fetch_sub(Stream::kMoving, std::memory_order_release);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  bool is_alone() const { return is_alone_; }
  Stream::Kind kind() const { return stream_.kind.load(std::memory_order_seq_cst); }

 private:
  Stream& stream_;
  bool is_alone_;
};

}  // namespace gpushare::shim
