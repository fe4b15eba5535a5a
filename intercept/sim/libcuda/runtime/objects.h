// SPDX-License-Identifier: Apache-2.0
// The objects behind the handles of the driver API in the stand-in libcuda. A comment says what
// protects a member; one without such a comment is set before the object is shared.
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

// The priorities of streams, as on an H200.
inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;

// A stream is a queue of the simulated context. The context's `order` protects the sequences.
struct Stream {
  uintptr_t context = 0;
  uint32_t queue = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  uint64_t last = 0;  // the sequence of the latest work; 0 when there was none
  // The same without waits, which are over when what they wait for has ended, and in a part of the
  // GPU without recordings and graphs: a wait for the whole context is over when this has ended, as
  // on an H200 (bench/gpu/driver/waits.cc).
  uint64_t last_for_context = 0;
  // How far this stream and the legacy stream wait for each other already.
  uint64_t legacy_waits_for = 0;  // a value of this stream's `last`
  uint64_t waits_for_legacy = 0;  // a value of the legacy stream's `last`
  bool is_dropped = false;        // the program destroyed it; its work runs to its end
  uint64_t sm_groups = 0;         // the groups of its green context; 0 means the whole GPU
  CUcontext green = nullptr;      // the context of its green context; null: there is none
  int priority = 0;               // has no effect in the simulation
  bool is_blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  // How many of the GPU's SMs its work may use.
  uint32_t usable_sms(uint32_t all) const { return sm_groups == 0 ? all : sms_in(sm_groups, all); }
};

struct Device {
  int ordinal = 0;
  sim::DescribeReply about{};
  std::mutex mutex;  // protects the members that follow
  unsigned primary_flags = 0;
  uint64_t primary_users = 0;
  CUcontext primary = nullptr;
};

struct Context {
  CUcontext handle = nullptr;
  Device* device = nullptr;
  uint32_t remote = 0;  // the server's number of it
  unsigned flags = 0;
  bool is_primary = false;
  // The first asynchronous failure; every later call of the context returns it.
  std::atomic<CUresult> failure{CUDA_SUCCESS};

  // Held while work is put in line (all nodes of a graph under one lock); it protects the streams.
  std::recursive_mutex order;
  std::shared_ptr<Stream> legacy;
  // A thread that begins after another one ended may get the same id, and then the same stream.
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
  std::unordered_set<std::shared_ptr<Stream>> streams;  // all except the legacy stream
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
  std::mutex mutex;                    // protects the members that follow
  std::shared_ptr<EventPoint> latest;  // null when it was never recorded
  // Not null when a stream that captures has recorded it since.
  std::shared_ptr<const CapturedPoint> captured;
};
inline std::shared_ptr<EventPoint> latest(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.latest;
}
inline std::shared_ptr<const CapturedPoint> captured_point(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.captured;
}

// A part of a device. Its streams belong to the primary context. Its own handle is that of its
// context, too, which cuCtxFromGreenCtx gives.
struct Green {
  CUcontext handle = nullptr;
  uintptr_t context = 0;  // the device's primary context
  Device* device = nullptr;
  uint64_t sm_groups = 0;
};

struct Module {
  uintptr_t context = 0;  // 0 for a library, which is loaded for all contexts
  std::vector<std::string> entries;
};

struct Function {
  std::shared_ptr<const Module> module;  // its unloading removes its functions
  uintptr_t context = 0;                 // the module's context
  const KernelModel* kernel = nullptr;
};

}  // namespace gpushare::standin
