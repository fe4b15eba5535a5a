// SPDX-License-Identifier: Apache-2.0
// All executable graphs of the process. A graph's kernels stay where they were captured, whatever
// stream launches it; so that a program's graphs are in its partition all the same, each is made
// again for a place at its first launch there (remake.h), and the copy is launched instead. Only in
// processes with the feature kShimPartitions.
//
// The wrappers call this on any thread. Nothing waits, with these exceptions: a launch waits for
// another thread's launch of the same graph, and the first one in a place takes as long as the copy
// needs: some milliseconds for a thousand kernels.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/graphs/exec.h"
#include "intercept/shim/graphs/graph_driver.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/hash.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

class Graphs {
 public:
  static constexpr uint32_t kTableSize = 1 << 14;  // a power of two
  static constexpr uint32_t kMostProbes = 64;
  // Of each graph; the one for the place to which it came longest ago goes.
  static constexpr int kMostCopies = 4;
  // A copy of a graph is made only when so many times as long as the last one took have passed.
  static constexpr uint64_t kRemakeParts = 20;
  // After the driver refused to make one.
  static constexpr uint64_t kRefusedPauseNs = 1'000'000'000;

  // Null: the feature is off, or the driver cannot do it.
  static Graphs* get() {
    Process& process = this_process();
    if ((process.features.load(std::memory_order_relaxed) & kShimPartitions) == 0) return nullptr;
    Graphs* there = process.graphs.load(std::memory_order_acquire);
    return __builtin_expect(there != nullptr, 1) ? there : make();
  }

  // --- exec.cc: what the program does with its executable graphs ---

  void on_instantiated(CUgraphExec handle, CUgraph graph, unsigned long long flags);
  void before_destroy(CUgraphExec handle);
  // Its nodes are now those of `graph`.
  void on_updated(CUgraphExec handle, CUgraph graph);
  // A graph has got an object of the program (cuUserObjectCreate), whose end the program may wait
  // for. Copies have it until they are changed, so that a graph that is updated has none from now
  // on.
  void note_object() { has_objects_.store(true, std::memory_order_relaxed); }
  // The parameters of one node of it have changed; `set(own)` changes those of the same node of our
  // own graph, and says whether it could.
  template <class Set>
  void on_changed(CUgraphExec handle, CUgraphNode node, const Set& set) {
    Exec* const exec = find(handle);
    if (exec == nullptr) return;
    const Locked locked(exec->lock);
    CUgraphNode own = nullptr;
    if (exec->form == nullptr) return;
    if (driver_->cuGraphNodeFindInClone(&own, node, exec->form) == CUDA_SUCCESS && set(own))
      exec->stale = ~uint32_t{0};
    else
      give_up(*exec);
  }
  // Before the stream ends, or begins or joins a capture: then it cannot be asked any more whether
  // what was launched in it runs.
  void forget_stream(Stream& stream);

  // --- launches.cc ---

  // Null: it is not known.
  Exec* find(CUgraphExec handle);
  // What is launched in that stream; null: in one that is not known. `there`: where the stream is
  // now. REQUIRES: exec.lock is held, and the caller is a user of the stream.
  CUgraphExec choose(Exec& exec, Stream* stream, CUstream there);
  // The same after the driver has refused to launch a copy there, and the latest launch is again
  // the one before. The graph stays where it was captured from now on.
  CUgraphExec stay(Exec& exec, Stream& stream, CUstream there);

 private:
  struct Entry {
    std::atomic<uintptr_t> handle;
    Exec exec;
  };

  static uint32_t place_of(CUgraphExec handle) {
    return place_in_table<kTableSize>(reinterpret_cast<uintptr_t>(handle));
  }
  static Graphs* make();
  Exec* add(CUgraphExec handle);
  void drop_copies(Exec& exec);
  void give_up(Exec& exec);  // it stays where it was captured
  // Returns true if `exec.behind` now comes behind the work of that stream.
  bool record_behind(Exec& exec, const Stream& stream);
  void drop_behind(Exec& exec);
  // launches.cc. REQUIRES: exec.lock is held.
  void examine(Exec& exec, Device& device);
  void choose_place(Exec& exec, Stream& stream);
  bool is_free(Exec& exec, const Stream& stream);
  bool may_run_behind(Exec& exec);
  bool make_copy(Exec& exec, Device& device, Partitions::Place place, bool is_needed);
  bool replace(Exec& exec, Partitions::Place place, CUgraph graph);
  void make_room(Exec& exec, Partitions::Place place);
  void order_behind_last(Exec& exec, const Stream* stream, CUstream there);
  static bool drop_place(Device& device, Partitions::Place place);
  bool drop_place_of_all(Device& device, Partitions::Place place);

  const GraphDriver* driver_;
  std::atomic<Exec*> all_;
  std::atomic<bool> has_objects_;
  SpinLock table_lock_;  // for new entries
  Entry table_[kTableSize];
};

}  // namespace gpushare::shim
