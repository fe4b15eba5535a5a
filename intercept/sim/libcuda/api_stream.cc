// SPDX-License-Identifier: Apache-2.0
// Stand-in libcuda: streams, events and host functions.
#include "intercept/sim/libcuda/api.h"

using gpushare::standin::Completion;
using gpushare::standin::Event;
using gpushare::standin::EventPoint;
using gpushare::standin::number_of;
using gpushare::standin::Work;
using gpushare::standin::WorkKind;

namespace {

Work work_of_kind(WorkKind kind) {
  Work work{};
  work.kind = kind;
  return work;
}

// The latest recording; null if there is none.
std::shared_ptr<EventPoint> latest(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.latest;
}

}  // namespace

// --- streams ------------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  GS_CURRENT();
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = runtime.streams.add(runtime.new_stream(context, flags));
  return CUDA_SUCCESS;
}

// The simulated GPU has no priorities: all streams are of the only one.
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

// Work that is in the stream still runs.
CUresult cuStreamDestroy_v2(CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.streams.find(stream);
  if (!found || found->context != number_of(context.handle)) return CUDA_ERROR_INVALID_HANDLE;
  runtime.streams.remove(stream);
  runtime.drop_stream(context, *found);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  GS_CURRENT();
  if (!runtime.stream(context, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = 0;
  return CUDA_SUCCESS;
}

// A stream of the simulation has no attributes.
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  GS_CURRENT();
  return runtime.stream(context, to) && runtime.stream(context, from) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

// There are no graphs.
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  GS_CURRENT();
  if (!runtime.stream(context, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  return runtime.query(context, runtime.pending(context, *found));
}

CUresult cuStreamSynchronize(CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  return runtime.wait(context, runtime.pending(context, *found));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  const auto awaited = runtime.events.find(event);
  if (!found || !awaited) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  const auto point = latest(*awaited);
  if (!point) return CUDA_SUCCESS;
  Work wait = work_of_kind(WorkKind::kWait);
  wait.amount = point->sequence;
  return runtime.submit(context, *found, wait).first;
}

// A marker shows that it is the function's turn, a gate holds up what is behind it until it is
// done.
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work gate = work_of_kind(WorkKind::kGate);
  gate.sequence = runtime.new_sequence();
  runtime.watcher().expect_host_function();
  // A gate can be opened only once it is submitted: both must have happened.
  const auto announce = [&watcher = runtime.watcher(), function, data, sequence = gate.sequence,
                         missing = std::make_shared<std::atomic<int>>(2)] {
    if (--*missing == 0) watcher.due(function, data, sequence);
  };
  const CUresult marked = runtime
                              .submit(context, *found, work_of_kind(WorkKind::kMarker),
                                      [announce](const Completion&) { announce(); })
                              .first;
  if (marked != CUDA_SUCCESS) return marked;
  const CUresult gated = runtime.submit(context, *found, gate).first;
  if (gated == CUDA_SUCCESS) announce();
  return gated;
}

// --- events -------------------------------------------------------------------------------------

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  GS_CURRENT();
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  if (event == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto created = std::make_shared<Event>();
  created->context = number_of(context.handle);
  created->flags = flags;
  *event = runtime.events.add(std::move(created));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  GS_CURRENT();
  return runtime.events.remove(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  const auto recorded = runtime.events.find(event);
  if (!found || !recorded || recorded->context != number_of(context.handle))
    return CUDA_ERROR_INVALID_HANDLE;
  auto point = std::make_shared<EventPoint>();
  const auto [result, sequence] =
      runtime.submit(context, *found, work_of_kind(WorkKind::kMarker),
                     [point](const Completion& done) { point->finished_ns = done.finished_ns; });
  if (result != CUDA_SUCCESS) return result;
  point->sequence = sequence;
  const std::lock_guard lock(recorded->mutex);
  recorded->latest = std::move(point);
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  const auto point = latest(*found);
  return point ? runtime.query(context, {point->sequence}) : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  const auto point = latest(*found);
  return point ? runtime.wait(context, {point->sequence}) : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  GS_CURRENT();
  const auto from = runtime.events.find(start), to = runtime.events.find(end);
  if (!from || !to || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto first = latest(*from), last = latest(*to);
  if (!first || !last) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult done = runtime.query(context, {first->sequence, last->sequence});
  if (done != CUDA_SUCCESS) return done;
  const auto elapsed = static_cast<int64_t>(last->finished_ns - first->finished_ns);
  *milliseconds = static_cast<float>(static_cast<double>(elapsed) / 1e6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime(milliseconds, start, end);
}
