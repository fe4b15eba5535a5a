// SPDX-License-Identifier: Apache-2.0
// Runtime: the stand-in libcuda's connection to the simulated GPU, its objects, and the order of
// work. The API functions (libcuda/api) check their arguments and call it, on any thread of the
// program. cuInit makes the one object of a process, which is never destroyed.
//
// The server decides when work ends. The thread that reads the completion computes the effect on
// memory, one at a time, in the order in which work ended, so that a wait that has returned means
// that the effects are there. Memory that a kernel writes changes only while a thread is in an API
// call, or an endless kernel or a host function is in progress (then Watcher reads every
// millisecond): a program that only polls pinned memory for the end of a kernel does not see it.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "intercept/sim/libcuda/memory/handles.h"
#include "intercept/sim/libcuda/memory/mappings.h"
#include "intercept/sim/libcuda/memory/memory_map.h"
#include "intercept/sim/libcuda/runtime/objects.h"
#include "intercept/sim/libcuda/runtime/watcher.h"
#include "intercept/sim/wire/client.h"

namespace gpushare::standin {

class Captures;
class Graph;
class GraphExec;
struct Node;

class Runtime {
 public:
  // True when GPUSHARE_SIM_STRICT is set: the stand-in then always does what the real driver may do
  // late or wrong.
  static bool is_strict() { return std::getenv("GPUSHARE_SIM_STRICT") != nullptr; }
  ~Runtime();

  // Runs when the work has ended, before any thread sees that. It may submit and stop work, but not
  // wait.
  using Effect = std::function<void(const Completion&)>;
  using Submitted = std::pair<CUresult, uint64_t>;  // the sequence is valid on success

  // Connects to the simulated GPU, whose socket GPUSHARE_SIM names. When it is not there, returns
  // NO_DEVICE and writes a line to standard error.
  static CUresult start();
  // Null until start() has succeeded.
  static Runtime* get();

  Device* device(CUdevice ordinal) const;
  int device_count() const { return static_cast<int>(devices_.size()); }

  // --- contexts
  CUresult create_context(Device& device, unsigned flags, bool is_primary, CUcontext* handle);
  // Waits for its work and then frees all that it has.
  CUresult destroy_context(CUcontext handle);

  // --- work
  // Puts work in line behind what must come first by its stream and by the rules of the legacy
  // default stream. The caller sets `work.kind`, `direction`, `amount` and `sm_ppm`, and may set
  // `sequence` to one from new_sequence(); otherwise the work gets one.
  Submitted submit(Context& context, Stream& stream, Work work, Effect effect = {});
  uint64_t new_sequence() { return next_sequence_++; }
  // The sequences that a wait for this stream waits for, for the context, for a part of it, and for
  // all that there is; some of them may be done.
  std::vector<uint64_t> pending(Context& context, const Stream& stream);
  std::vector<uint64_t> pending(Context& context);
  std::vector<uint64_t> pending(Context& context, const Green& green);
  std::vector<uint64_t> all_work(Context& context);
  CUresult wait(const Context& context, const std::vector<uint64_t>& sequences);
  // NOT_READY while one of them is unfinished.
  CUresult query(const Context& context, const std::vector<uint64_t>& sequences);

  // --- streams
  std::shared_ptr<Stream> new_stream(Context& context, unsigned flags);
  // Its work runs to its end, and is waited for as before.
  void drop_stream(Context& context, Stream& stream);
  // The stream of a handle, which may be null, GS_CU_STREAM_LEGACY, GS_CU_STREAM_PER_THREAD or one
  // that was created. Null when this context has no such stream.
  std::shared_ptr<Stream> stream(Context& context, CUstream handle);

  Client& client() { return *client_; }
  Watcher& watcher() { return *watcher_; }
  // Another one, for waits for words of memory: a host function may keep the first one from
  // looking.
  Watcher& value_watcher() { return *value_watcher_; }
  // Counts a recording of an event that the program asked for. At the end of the process the number
  // is written to the file that GPUSHARE_SIM_EVENT_RECORDS names.
  void count_event_record() { event_records_.fetch_add(1, std::memory_order_relaxed); }
  Captures& captures() { return *captures_; }

  MemoryMap memory;
  Mappings mappings{memory};
  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUgreenCtx, Green> greens;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphNode, Node> nodes;
  HandleTable<CUgraphExec, GraphExec> execs;

 private:
  struct Pending {
    uint32_t context = 0;
    Effect effect;
  };

  Runtime();
  CUresult connect();
  static void write_event_records();
  void on_completion(const Completion& completion);
  Result<> enqueue(Context& context, Stream& stream, Work work, Effect effect);
  Result<> wait_for(Context& context, Stream& stream, uint64_t sequence);
  void sweep(Context& context);

  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Watcher> watcher_, value_watcher_;
  std::unique_ptr<Captures> captures_;
  std::atomic<uint64_t> next_sequence_{1};
  std::atomic<uint64_t> event_records_{0};

  std::mutex effects_mutex_;
  std::unordered_map<uint64_t, Pending> effects_;  // by sequence
};

// A context as objects.h stores it.
inline uintptr_t number_of(CUcontext handle) { return reinterpret_cast<uintptr_t>(handle); }

// The calling thread's context, or as `status` INVALID_CONTEXT when it has none,
// CONTEXT_IS_DESTROYED, the context's asynchronous failure, or NOT_INITIALIZED.
struct Current {
  Runtime* runtime = nullptr;
  std::shared_ptr<Context> context;
  // Not null when the context of a green context is current; `context` is then the primary one.
  std::shared_ptr<Green> green;
  CUresult status = CUDA_ERROR_NOT_INITIALIZED;
};
Current current();

// The green context of that context; null: it is no such one.
std::shared_ptr<Green> green_of(const Runtime& runtime, CUcontext context);

// The contexts of the calling thread; the last one is current.
std::vector<CUcontext>& context_stack();

// The CUDA error for a failed call to the server.
CUresult to_cuda(const Error& error);

}  // namespace gpushare::standin
