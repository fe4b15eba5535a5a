// SPDX-License-Identifier: Apache-2.0
// Executable graphs come, change and go, with the streams in which they were launched. On the
// thread of the program's call.
#include <sys/mman.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/graphs/graphs.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {
namespace {

// CUgraphInstantiate_flags: kernels launch the graph.
constexpr unsigned long long kDeviceLaunch = 4;

}  // namespace

Graphs* Graphs::make() {
  Process& process = this_process();
  const KeepErrno errno_of_the_program;
  const GraphDriver* functions = graph_driver();
  Streams* const streams = Streams::get();
  if (functions == nullptr || streams == nullptr) return nullptr;
  void* memory = ::mmap(nullptr, sizeof(Graphs), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* made = static_cast<Graphs*>(memory);  // zero bytes are a Graphs without any graph
  made->driver_ = functions;
  Graphs* there = nullptr;
  if (process.graphs.compare_exchange_strong(there, made, std::memory_order_acq_rel)) {
    streams->on_place_gone(&Graphs::drop_place);
    return made;
  }
  ::munmap(memory, sizeof(Graphs));
  return there;
}

// Entries are added under table_lock_ and get another graph there, but are never removed, so that
// any thread may read without it.
Exec* Graphs::find(CUgraphExec handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  for (uint32_t i = 0, at = place_of(handle); i < kMostProbes; ++i, ++at) {
    Entry& entry = table_[at % kTableSize];
    const uintptr_t there = entry.handle.load(std::memory_order_acquire);
    if (there == number && number != 0) return &entry.exec;
    if (there == 0) return nullptr;
  }
  return nullptr;
}

// The address of a destroyed graph keeps its entry, as the driver gives addresses out again, until
// another graph needs it. What is returned has its `original`, so that it is no other thread's.
Exec* Graphs::add(CUgraphExec handle) {
  const Locked locked(table_lock_);
  if (Exec* const known = find(handle)) {
    const Locked held(known->lock);
    known->original = handle;
    return known;
  }
  const auto number = reinterpret_cast<uintptr_t>(handle);
  for (const bool takes_old : {false, true})
    for (uint32_t i = 0, at = place_of(handle); i < kMostProbes; ++i, ++at) {
      Entry& entry = table_[at % kTableSize];
      const bool is_new = entry.handle.load(std::memory_order_relaxed) == 0;
      if (!is_new && !takes_old) continue;
      const TryLocked held(entry.exec.lock);
      if (!held.is_held() || entry.exec.original != nullptr) continue;
      entry.exec.original = handle;
      if (is_new) entry.exec.next = all_.load(std::memory_order_relaxed);
      entry.handle.store(number, std::memory_order_release);
      if (is_new) all_.store(&entry.exec, std::memory_order_release);
      return &entry.exec;
    }
  return nullptr;
}

void Graphs::on_instantiated(CUgraphExec handle, CUgraph graph, unsigned long long flags) {
  const KeepErrno errno_of_the_program;
  Exec* const exec = add(handle);
  if (exec == nullptr) return;
  const Locked locked(exec->lock);
  if (exec->form != nullptr) give_up(*exec);  // of one that ended with its context
  exec->flags = flags;
  exec->device = nullptr;
  exec->captured = Exec::kNowhere;
  exec->is_examined = false;
  exec->is_at_home = true;
  exec->at = Exec::kNowhere;
  exec->last.store(nullptr, std::memory_order_relaxed);
  exec->is_behind = false;
  exec->stale = 0;
  exec->next_remake_ns = 0;
  if ((flags & kDeviceLaunch) != 0) return;
  const AllowedInCaptures allowed(*driver_);
  if (driver_->cuGraphClone(&exec->form, graph) != CUDA_SUCCESS) exec->form = nullptr;
}

void Graphs::before_destroy(CUgraphExec handle) {
  Exec* const exec = find(handle);
  if (exec == nullptr) return;
  const KeepErrno errno_of_the_program;
  const Locked locked(exec->lock);
  give_up(*exec);
  exec->original = nullptr;
}

void Graphs::on_updated(CUgraphExec handle, CUgraph graph) {
  Exec* const exec = find(handle);
  if (exec == nullptr) return;
  const KeepErrno errno_of_the_program;
  const Locked locked(exec->lock);
  if (exec->form == nullptr) return;
  const AllowedInCaptures allowed(*driver_);
  CUgraph form = nullptr;
  if (has_objects_.load(std::memory_order_relaxed) ||
      driver_->cuGraphClone(&form, graph) != CUDA_SUCCESS)
    return give_up(*exec);
  driver_->cuGraphDestroy(exec->form);
  exec->form = form;
  exec->stale = ~uint32_t{0};
}

void Graphs::forget_stream(Stream& stream) {
  const KeepErrno errno_of_the_program;
  Streams::get()->leave_graphs(stream);
  for (Exec* exec = all_.load(std::memory_order_acquire); exec != nullptr; exec = exec->next) {
    // The launch of another one may wait for what the program does after this.
    if (exec->last.load(std::memory_order_relaxed) != &stream) continue;
    const Locked locked(exec->lock);
    // Another thread may have launched it in another stream meanwhile, behind that launch.
    if (exec->last.load(std::memory_order_relaxed) != &stream) continue;
    const AllowedInCaptures allowed(*driver_);
    exec->last.store(nullptr, std::memory_order_relaxed);
    if (Streams::get()->is_empty(stream)) continue;
    exec->is_behind = true;
    // Without an event it stays with what it launched.
    if (!record_behind(*exec, stream)) drop_behind(*exec);
  }
}

// What is recorded in a stream that captures would become part of its graph. The program may call
// with any context, and an event must be of that of the stream.
bool Graphs::record_behind(Exec& exec, const Stream& stream) {
  const InContext in(*driver_, stream.device->primary.load(std::memory_order_relaxed));
  if (!in.is_there() || Streams::get()->is_capturing(stream)) return false;
  if (exec.behind_of != stream.device) drop_behind(exec);
  exec.behind_of = stream.device;
  if (exec.behind == nullptr &&
      driver_->cuEventCreate(&exec.behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    exec.behind = nullptr;
    return false;
  }
  return driver_->cuEventRecord(exec.behind, stream.physical()) == CUDA_SUCCESS;
}

void Graphs::drop_behind(Exec& exec) {
  if (exec.behind != nullptr) driver_->cuEventDestroy_v2(exec.behind);
  exec.behind = nullptr;
}

// The driver ends a launch that runs before it frees what is destroyed here.
void Graphs::drop_copies(Exec& exec) {
  for (CUgraphExec& copy : exec.copies) {
    if (copy != nullptr) driver_->cuGraphExecDestroy(copy);
    copy = nullptr;
  }
}

void Graphs::give_up(Exec& exec) {
  const AllowedInCaptures allowed(*driver_);
  drop_copies(exec);
  if (exec.form != nullptr) driver_->cuGraphDestroy(exec.form);
  exec.form = nullptr;
}

}  // namespace gpushare::shim
