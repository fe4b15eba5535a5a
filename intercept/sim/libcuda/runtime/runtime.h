// SPDX-License-Identifier: Apache-2.0
// The heart of the stand-in libcuda: the connection to the simulated GPU, all objects, and the
// order of work. The API functions (api_*.cc) check their arguments and call this.
//
// Work is submitted to the server, which decides when it ends; its effect on memory is computed
// here, on whichever thread reads the completion, one at a time, in the order in which work ended.
// So a wait that has returned means that the effects are there. Memory that a kernel writes changes
// only when some thread is inside an API call, or an endless kernel or a host function is under way
// (then a thread of ours reads every millisecond): a program that merely watches pinned memory for
// the end of an ordinary kernel will not see it.
//
// Thread-safe. One object a process, made by cuInit, never destroyed: threads of the program may
// call at any time until the process ends.
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
  // GPUSHARE_SIM_STRICT is set: what the real driver may do wrong or late, this one does.
  static bool is_strict() { return std::getenv("GPUSHARE_SIM_STRICT") != nullptr; }
  ~Runtime();

  // Runs when the work has ended, before anyone sees that. It may submit and stop, not wait.
  using Effect = std::function<void(const Completion&)>;
  using Submitted = std::pair<CUresult, uint64_t>;  // the sequence, valid on success

  // Connects to the simulated GPU: GPUSHARE_SIM names its socket. NO_DEVICE when it is not there,
  // and a line on standard error says so.
  static CUresult start();
  // Null before start() succeeded.
  static Runtime* get();

  Device* device(CUdevice ordinal) const;
  int device_count() const { return static_cast<int>(devices_.size()); }

  // --- contexts
  CUresult create_context(Device& device, unsigned flags, bool is_primary, CUcontext* handle);
  // Waits for its work, then drops all that it has.
  CUresult destroy_context(CUcontext handle);

  // --- work
  // Puts work in line behind what its stream, and the rules of the legacy default stream, say that
  // must come first. `work.kind`, `direction`, `amount` and `sm_ppm` are the caller's, and
  // `sequence` may be: one from new_sequence(), else it gets one.
  Submitted submit(Context& context, Stream& stream, Work work, Effect effect = {});
  uint64_t new_sequence() { return next_sequence_++; }
  // What a wait for this stream waits for: sequences, some perhaps done.
  std::vector<uint64_t> pending(Context& context, const Stream& stream);
  std::vector<uint64_t> pending(Context& context);
  CUresult wait(const Context& context, const std::vector<uint64_t>& sequences);
  // NOT_READY while one is unfinished.
  CUresult query(const Context& context, const std::vector<uint64_t>& sequences);

  // --- streams
  std::shared_ptr<Stream> new_stream(Context& context, unsigned flags);
  // Its work still runs, and is waited for as before.
  void drop_stream(Context& context, Stream& stream);
  // Of a handle: null and GS_CU_STREAM_LEGACY, GS_CU_STREAM_PER_THREAD, or one that was created.
  // Null if there is none such in this context.
  std::shared_ptr<Stream> stream(Context& context, CUstream handle);

  Client& client() { return *client_; }
  Watcher& watcher() { return *watcher_; }
  // Recordings of events that were asked for. At the end of the process the file that
  // GPUSHARE_SIM_EVENT_RECORDS names has their number.
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
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<Captures> captures_;
  std::atomic<uint64_t> next_sequence_{1};
  std::atomic<uint64_t> event_records_{0};

  std::mutex effects_mutex_;
  std::unordered_map<uint64_t, Pending> effects_;  // by sequence
};

// The owner of an object, as objects.h stores it.
inline uintptr_t number_of(CUcontext handle) { return reinterpret_cast<uintptr_t>(handle); }

// The calling thread's context. INVALID_CONTEXT if it has none, CONTEXT_IS_DESTROYED, the context's
// asynchronous failure, or NOT_INITIALIZED.
struct Current {
  Runtime* runtime = nullptr;
  std::shared_ptr<Context> context;
  CUresult status = CUDA_ERROR_NOT_INITIALIZED;
};
Current current();

// Of the calling thread; the last is current.
std::vector<CUcontext>& context_stack();

// What a failed call to the server means to a program.
CUresult to_cuda(const Error& error);

}  // namespace gpushare::standin
