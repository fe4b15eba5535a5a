// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for the capture of streams.
#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/captures.h"

using namespace gpushare::standin;

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  GS_STREAM(stream);
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  return runtime.captures().begin(runtime, context, found, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  GS_STREAM(stream);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Graph> captured;
  const CUresult result = runtime.captures().end(*found, &captured);
  *graph = captured ? runtime.graphs.add(std::move(captured)) : nullptr;
  return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  GS_STREAM(stream);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return runtime.captures().status(context, *found, status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (Runtime::get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  *mode = Captures::exchange_mode(*mode);
  return CUDA_SUCCESS;
}
