// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for streams, events and host functions.
#include <algorithm>
#include <functional>

#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/captures.h"

using namespace gpushare::standin;

// --- streams ------------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  GS_CURRENT();
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = runtime.streams.add(runtime.new_stream(context, flags));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  GS_CURRENT();
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const auto created = runtime.new_stream(context, flags);
  created->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  *stream = runtime.streams.add(created);
  return CUDA_SUCCESS;
}

// Work that is in the stream runs to its end.
CUresult cuStreamDestroy_v2(CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.streams.find(stream);
  if (!found || found->context != number_of(context.handle)) return CUDA_ERROR_INVALID_HANDLE;
  runtime.streams.remove(stream);
  runtime.drop_stream(context, *found);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  GS_STREAM(stream);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  GS_STREAM(stream);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = found->priority;
  return CUDA_SUCCESS;
}

// Streams of the simulation have no attributes.
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  GS_CURRENT();
  return runtime.stream(context, to) && runtime.stream(context, from) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamQuery(CUstream stream) {
  GS_STREAM(stream);
  const CUresult allowed = runtime.captures().check_wait(context, *found);
  return allowed != CUDA_SUCCESS ? allowed
                                 : runtime.query(context, runtime.pending(context, *found));
}

CUresult cuStreamSynchronize(CUstream stream) {
  GS_STREAM(stream);
  const CUresult allowed = runtime.captures().check_wait(context, *found);
  return allowed != CUDA_SUCCESS ? allowed
                                 : runtime.wait(context, runtime.pending(context, *found));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  GS_CURRENT();
  const auto found = runtime.stream(context, stream);
  const auto awaited = runtime.events.find(event);
  if (!found || !awaited) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (const auto taken = runtime.captures().take_wait(context, found, *awaited)) return *taken;
  if (!latest(*awaited)) return CUDA_SUCCESS;
  return make_wait(awaited)->submit(runtime, now.context, *found).first;
}

namespace {

// Puts the operation that is made into the stream.
CUresult put(CUstream stream, const std::function<Made(Runtime&)>& make) {
  GS_STREAM(stream);
  const auto made = make(runtime);
  if (made.result != CUDA_SUCCESS) return made.result;
  return perform(runtime, now.context, found, made.operation).first;
}

// Puts a wait for a value of `bytes` in memory, or a write of one.
CUresult put_of_memory(Made (*make)(Runtime&, CUdeviceptr, uint64_t, unsigned, unsigned),
                       CUstream stream, CUdeviceptr address, uint64_t value, unsigned bytes,
                       unsigned flags) {
  return put(stream, [=](Runtime& runtime) { return make(runtime, address, value, bytes, flags); });
}

}  // namespace

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return put(stream, [=](Runtime&) { return make_host_function(function, data); });
}

// --- values in memory --------------------------------------------------------------------------

#define GS_VALUE_FUNCTION(name, type, make)                                         \
  CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned flags) { \
    return put_of_memory(make, stream, address, value, sizeof(value), flags);       \
  }
GS_VALUE_FUNCTION(cuStreamWaitValue32_v2, uint32_t, make_wait_for_value)
GS_VALUE_FUNCTION(cuStreamWaitValue64_v2, uint64_t, make_wait_for_value)
GS_VALUE_FUNCTION(cuStreamWriteValue32_v2, uint32_t, make_write_of_value)
GS_VALUE_FUNCTION(cuStreamWriteValue64_v2, uint64_t, make_write_of_value)

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
  runtime.count_event_record();
  const auto found = runtime.stream(context, stream);
  const auto recorded = runtime.events.find(event);
  if (!found || !recorded || recorded->context != number_of(context.handle))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const auto taken = runtime.captures().take_record(context, *found, *recorded)) return *taken;
  return make_record(recorded)->submit(runtime, now.context, *found).first;
}

CUresult cuEventQuery(CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = runtime.captures().check_wait(*found); refused != CUDA_SUCCESS)
    return refused;
  const auto point = latest(*found);
  return point ? runtime.query(context, {point->sequence}) : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = runtime.captures().check_wait(*found); refused != CUDA_SUCCESS)
    return refused == CUDA_ERROR_CAPTURED_EVENT ? CUDA_ERROR_INVALID_VALUE : refused;
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
