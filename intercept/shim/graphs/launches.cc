// SPDX-License-Identifier: Apache-2.0
// Which copy of a graph a launch starts. A graph goes to another place only when its latest launch
// cannot run beside the new one: both are in the same stream, or the stream of the latest one is
// empty. On the launching thread, under the graph's lock.
#include <algorithm>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/graphs/graphs.h"
#include "intercept/shim/graphs/remake.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

using Place = Partitions::Place;

namespace {

// CUgraphInstantiate_flags that mean the same for a copy: each kernel has its own priority. Not
// that memory of the graph is freed by its next launch, as graphs with memory are not copied.
constexpr unsigned long long kKeptFlags = 8;

// The places where the kernels of a graph run.
struct Found {
  Streams& streams;
  Device& device;
  bool is_any;
  int place;  // -1: several, or one that is not of this device
  bool is_at_home;

  static bool note(void* data, CUcontext context) {
    auto& found = *static_cast<Found*>(data);
    const int place = found.streams.place_of(found.device, context);
    found.is_at_home |= place <= 0;
    if (!found.is_any) found.place = place;
    if (found.place != place) found.place = -1;
    found.is_any = true;
    return place >= 0;
  }
};

}  // namespace

// At its first launch.
void Graphs::examine(Exec& exec, Device& device) {
  exec.is_examined = true;
  exec.device = &device;
  exec.captured = Exec::kNowhere;
  exec.is_at_home = true;
  if (exec.form == nullptr) return;
  const AllowedInCaptures allowed(*driver_);
  Found found{*Streams::get(), device, false, -1, false};
  const GraphAbout about = about_graph(*driver_, exec.form, &Found::note, &found);
  if (about.is_known) exec.is_at_home = found.is_at_home;
  if (about.is_known && found.place >= 0) exec.captured = static_cast<Place>(found.place);
  if (!about.can_be_remade || !found.is_any) give_up(exec);
}

// Returns true if what was launched in a stream that was forgotten may run.
bool Graphs::may_run_behind(Exec& exec) {
  if (!exec.is_behind || exec.behind == nullptr) return exec.is_behind;
  const AllowedInCaptures allowed(*driver_);
  exec.is_behind = driver_->cuEventQuery(exec.behind) != CUDA_SUCCESS;
  return exec.is_behind;
}

// Returns true if a launch in `stream` cannot run beside the latest one.
bool Graphs::is_free(Exec& exec, const Stream& stream) {
  if (may_run_behind(exec)) return false;
  Stream* const last = exec.last.load(std::memory_order_relaxed);
  // A thread's own stream may be another thread's by now, but then it was empty in between.
  if (last == nullptr || last == &stream) return true;
  const AllowedInCaptures allowed(*driver_);
  return Streams::get()->is_empty(*last);
}

// Sets `at`: the place for which a launch in that stream finds a copy that is not stale, or
// kNowhere.
void Graphs::choose_place(Exec& exec, Stream& stream) {
  Device& device = *stream.device;
  const Place wanted = stream.place.load(std::memory_order_relaxed);
  if (exec.at != wanted && is_free(exec, stream) &&
      (exec.of(wanted) != nullptr || make_copy(exec, device, wanted, false)))
    exec.at = wanted;
  // The program has changed it since.
  if (exec.at != Exec::kNowhere && exec.of(exec.at) == nullptr &&
      !make_copy(exec, device, exec.at, !is_free(exec, stream)))
    exec.at = Exec::kNowhere;
}

CUgraphExec Graphs::choose(Exec& exec, Stream* stream, CUstream there) {
  // As nearly always: it is where its stream is, and was launched there before.
  if (stream != nullptr && exec.at == stream->place.load(std::memory_order_relaxed) &&
      exec.last.load(std::memory_order_relaxed) == stream && exec.device == stream->device)
    if (CUgraphExec const same = exec.of(exec.at)) return same;
  const KeepErrno errno_of_the_program;
  const Place before = exec.at;
  if (stream == nullptr) {
    // Whether this launch runs cannot be asked later. From now on all are of the original, which
    // the driver itself keeps in order.
    exec.is_examined = true;
    give_up(exec);
  } else {
    if (!exec.is_examined) examine(exec, *stream->device);
    if (exec.form != nullptr && exec.device == stream->device) choose_place(exec, *stream);
  }
  if (const CUgraphExec copy = exec.at == Exec::kNowhere ? nullptr : exec.of(exec.at);
      copy != nullptr && copy != exec.original) {
    exec.last.store(stream, std::memory_order_relaxed);
    if (exec.at != before) exec.used_ns[exec.at] = monotonic_ns();
    return copy;
  }
  // The driver itself puts the original behind the original.
  if (before != Exec::kNowhere && before != exec.captured &&
      (stream == nullptr || !is_free(exec, *stream)))
    order_behind_last(exec, stream, there);
  exec.last.store(stream, std::memory_order_relaxed);
  exec.at = exec.captured;
  return exec.original;
}

CUgraphExec Graphs::stay(Exec& exec, Stream& stream, CUstream there) {
  const KeepErrno errno_of_the_program;
  give_up(exec);
  return choose(exec, &stream, there);
}

// A copy that may run must be changed, but the driver did not do it: the original comes after it.
// In a stream that captures the driver refuses the launch, and the last stream was forgotten before
// it began to.
void Graphs::order_behind_last(Exec& exec, const Stream* stream, CUstream there) {
  const AllowedInCaptures allowed(*driver_);
  CUstreamCaptureStatus status{};
  if (driver_->cuStreamIsCapturing(there, &status) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_NONE)
    return;
  if (exec.is_behind && exec.behind != nullptr) driver_->cuStreamWaitEvent(there, exec.behind, 0);
  Stream* const last = exec.last.load(std::memory_order_relaxed);
  if (last == nullptr || last == stream) return;
  if (record_behind(exec, *last)) driver_->cuStreamWaitEvent(there, exec.behind, 0);
}

// `is_needed`: also if the last one was made a moment ago.
bool Graphs::make_copy(Exec& exec, Device& device, Place place, bool is_needed) {
  Streams& streams = *Streams::get();
  const uint64_t begin = monotonic_ns();
  if ((streams.is_any_capturing() || begin < exec.next_remake_ns) && !is_needed) return false;
  CUcontext const there = streams.context_of(device, place);
  if (there == nullptr) return false;
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  if (!in.is_there()) return false;
  const AllowedInCaptures allowed(*driver_);
  CUgraph const graph = remake(*driver_, exec.form, there);
  const bool is_made = graph != nullptr && replace(exec, place, graph);
  if (graph != nullptr) driver_->cuGraphDestroy(graph);
  const uint64_t end = monotonic_ns();
  exec.next_remake_ns = end + (end - begin) * kRemakeParts;
  if (!is_made) exec.next_remake_ns = std::max(exec.next_remake_ns, end + kRefusedPauseNs);
  return is_made;
}

// An update is cheaper than a new one, and does not change what is in line.
bool Graphs::replace(Exec& exec, Place place, CUgraph graph) {
  CUgraphExec& copy = exec.copies[place];
  CUgraphExecUpdateResultInfo_v1 info{};
  if (copy != nullptr && driver_->cuGraphExecUpdate_v2(copy, graph, &info) != CUDA_SUCCESS) {
    if (exec.at == place) return false;  // it may run
    driver_->cuGraphExecDestroy(copy);
    copy = nullptr;
  }
  if (copy == nullptr) {
    make_room(exec, place);
    if (driver_->cuGraphInstantiateWithFlags(&copy, graph, exec.flags & kKeptFlags) !=
        CUDA_SUCCESS) {
      copy = nullptr;
      return false;
    }
  }
  exec.stale &= ~(1u << place);
  return true;
}

void Graphs::make_room(Exec& exec, Place place) {
  int count = 0, oldest = -1;
  for (int i = 0; i < Exec::kPlaces; ++i) {
    if (exec.copies[i] == nullptr) continue;
    ++count;
    if (i != exec.at && i != place && (oldest < 0 || exec.used_ns[i] < exec.used_ns[oldest]))
      oldest = i;
  }
  if (count < kMostCopies || oldest < 0) return;
  driver_->cuGraphExecDestroy(exec.copies[oldest]);
  exec.copies[oldest] = nullptr;
}

// --- a partition goes ---------------------------------------------------------------------------

// Returns false if a copy in that place may run. Place 0: all of the device go, with its primary
// context. REQUIRES: device.lock is held; so a graph that is being launched is not waited for.
bool Graphs::drop_place(Device& device, Place place) {
  Graphs* const all = this_process().graphs.load(std::memory_order_acquire);
  const KeepErrno errno_of_the_program;
  return all == nullptr || all->drop_place_of_all(device, place);
}

bool Graphs::drop_place_of_all(Device& device, Place place) {
  const AllowedInCaptures allowed(*driver_);
  for (Exec* exec = all_.load(std::memory_order_acquire); exec != nullptr; exec = exec->next) {
    const TryLocked locked(exec->lock);
    if (!locked.is_held()) {
      if (place == 0) continue;
      return false;
    }
    // The event ends with the context, also that of a graph which was launched on another device.
    if (place == 0 && exec->behind_of == &device) {
      exec->behind = nullptr;
      exec->behind_of = nullptr;
      exec->is_behind = false;
    }
    if (exec->device != &device) continue;
    if (place == 0) {
      give_up(*exec);
      exec->last.store(nullptr, std::memory_order_relaxed);
      if (exec->behind == nullptr) exec->is_behind = false;
      exec->device = nullptr;
      continue;
    }
    if (exec->copies[place] == nullptr) continue;
    if (exec->at == place) {
      Stream* const last = exec->last.load(std::memory_order_relaxed);
      if (may_run_behind(*exec) || (last != nullptr && !Streams::get()->is_empty(*last)))
        return false;
      exec->at = Exec::kNowhere;
    }
    driver_->cuGraphExecDestroy(exec->copies[place]);
    exec->copies[place] = nullptr;
  }
  return true;
}

}  // namespace gpushare::shim
