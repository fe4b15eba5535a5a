// SPDX-License-Identifier: Apache-2.0
// What handles of the driver API stand for in the stand-in libcuda. Who may change a field: see
// there; fields without a note are set before the object is shared.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "intercept/cuda/cuda_api.h"
#include "intercept/sim/libcuda/memory/kernels.h"
#include "intercept/sim/wire/client.h"
#include "intercept/sim/wire/protocol.h"

namespace gpushare::standin {

using sim::Client;
using sim::Completion;
using sim::Direction;
using sim::Work;
using sim::WorkKind;

// Of streams: an H200's.
inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;

// A stream is a queue of the simulated context. The context's `order` protects the sequences.
struct Stream {
  uintptr_t context = 0;
  uint32_t queue = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  uint64_t last = 0;  // sequence of the work submitted last; 0: none yet
  // How far this stream and the legacy stream already wait for each other.
  uint64_t legacy_waits_for = 0;  // a value of this stream's `last`
  uint64_t waits_for_legacy = 0;  // a value of the legacy stream's `last`
  bool is_dropped = false;        // the program destroyed it; its work still runs
  uint64_t sm_groups = 0;         // of its green context; 0: the whole GPU
  int priority = 0;               // changes nothing in the simulation
  bool is_blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  // Of so many that the GPU has.
  uint32_t usable_sms(uint32_t all) const { return sm_groups == 0 ? all : sms_in(sm_groups, all); }
};

struct Device {
  int ordinal = 0;
  sim::DescribeReply about{};
  std::mutex mutex;  // of what follows
  unsigned primary_flags = 0;
  uint64_t primary_users = 0;
  CUcontext primary = nullptr;
};

struct Context {
  CUcontext handle = nullptr;
  Device* device = nullptr;
  uint32_t remote = 0;  // the server's name of it
  unsigned flags = 0;
  bool is_primary = false;
  // The first asynchronous failure; every later call of the context returns it.
  std::atomic<CUresult> failure{CUDA_SUCCESS};

  // Held while work is put in line, for a graph while all of its nodes are; protects the streams.
  std::recursive_mutex order;
  std::shared_ptr<Stream> legacy;
  // A thread that begins after another ended may get its number, and then its (in-order) stream.
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
  std::unordered_set<std::shared_ptr<Stream>> streams;  // all but the legacy stream
  std::vector<uint32_t> free_queues;
  uint32_t next_queue = 0;
};

// One recording of an event.
struct EventPoint {
  uint64_t sequence = 0;
  uint64_t finished_ns = 0;  // set before the sequence is done
};

struct CapturedPoint;
struct Event {
  uintptr_t context = 0;
  unsigned flags = CU_EVENT_DEFAULT;
  std::mutex mutex;                               // of what follows
  std::shared_ptr<EventPoint> latest;             // null: never recorded
  std::shared_ptr<const CapturedPoint> captured;  // not null: since then, in a stream that captures
};
inline std::shared_ptr<EventPoint> latest(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.latest;
}
inline std::shared_ptr<const CapturedPoint> captured_point(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.captured;
}

// A part of a device. Its streams belong to the primary context.
struct Green {
  uintptr_t context = 0;  // the primary one's
  Device* device = nullptr;
  uint64_t sm_groups = 0;
};

struct Module {
  uintptr_t context = 0;  // 0: a library, which is loaded for all contexts
  std::vector<std::string> entries;
};

struct Function {
  std::shared_ptr<const Module> module;  // functions go when it is unloaded
  uintptr_t context = 0;                 // the module's
  const KernelModel* kernel = nullptr;
};

}  // namespace gpushare::standin
