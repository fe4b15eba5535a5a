// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/streams/ordering_driver.h"

#include <utility>

namespace gpushare::shim {

std::unique_ptr<FakeGpu> the_gpu;
std::function<void()> other_threads;
std::function<void(CUstream)> before_question, before_recording;
CUresult record_answer = CUDA_SUCCESS;
std::atomic<size_t> mode_changes = 0;
CUstream ended_capture = nullptr;
int driver_version = kNewestKnown;
const CUcontext kContext = reinterpret_cast<CUcontext>(uintptr_t{0x500});
CUcontext current_context = kContext;

namespace {

void meanwhile() {
  if (!other_threads) return;
  const auto theirs = std::exchange(other_threads, {});
  theirs();
  other_threads = theirs;
}

constinit const Driver kDriver{
    .cuCtxGetCurrent = [](CUcontext* context) { return *context = current_context, CUDA_SUCCESS; },
    .cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; },
    .cuCtxGetFlags = [](unsigned* flags) { return *flags = 0, CUDA_SUCCESS; },
    .cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; },
    .cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; },
    .cuDeviceGetPCIBusId =
        [](char* pci, int, CUdevice) {
          pci[0] = 'x', pci[1] = 0;
          return CUDA_SUCCESS;
        },
    .cuDriverGetVersion = [](int* version) { return *version = driver_version, CUDA_SUCCESS; },
    .cuEventCreate = [](CUevent* event,
                        unsigned) { return *event = the_gpu->new_event(), CUDA_SUCCESS; },
    .cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; },
    .cuEventQuery =
        [](CUevent event) { return the_gpu->is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; },
    .cuEventRecord =
        [](CUevent event, CUstream stream) {
          if (record_answer != CUDA_SUCCESS) return record_answer;
          if (before_recording) before_recording(stream);
          meanwhile();
          the_gpu->record(event, stream);
          meanwhile();
          return CUDA_SUCCESS;
        },
    .cuEventSynchronize =
        [](CUevent event) {
          the_gpu->finish(event);
          meanwhile();
          return CUDA_SUCCESS;
        },
    .cuStreamWaitEvent =
        [](CUstream stream, CUevent event, unsigned) {
          the_gpu->wait(stream, event);
          meanwhile();
          return CUDA_SUCCESS;
        },
    .cuStreamCreate =
        [](CUstream* stream, unsigned flags) {
          return *stream = the_gpu->create(flags == CU_STREAM_DEFAULT), CUDA_SUCCESS;
        },
    .cuStreamQuery =
        [](CUstream stream) {
          if (before_question) before_question(stream);
          return the_gpu->is_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        },
    .cuStreamDestroy_v2 = [](CUstream stream) { return the_gpu->destroy(stream), CUDA_SUCCESS; },
    .cuStreamGetFlags =
        [](CUstream stream, unsigned* flags) {
          *flags = the_gpu->is_blocking(stream) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
          return CUDA_SUCCESS;
        },
    .cuStreamGetPriority = [](CUstream, int*) { return CUDA_SUCCESS; },
    .cuStreamIsCapturing =
        [](CUstream stream, CUstreamCaptureStatus* status) {
          *status = the_gpu->is_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                  : CU_STREAM_CAPTURE_STATUS_NONE;
          return CUDA_SUCCESS;
        },
    .cuStreamEndCapture =
        [](CUstream stream, CUgraph* graph) {
          ended_capture = stream;
          return *graph = nullptr, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        },
    .cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; },
    .cuThreadExchangeStreamCaptureMode =
        [](CUstreamCaptureMode*) { return ++mode_changes, CUDA_SUCCESS; },
    .cuStreamCopyAttributes = [](CUstream, CUstream) { return CUDA_SUCCESS; },
    .cuDeviceGetDevResource = [](CUdevice, CUdevResource*,
                                 CUdevResourceType) { return CUDA_SUCCESS; },
    .cuDevSmResourceSplitByCount = [](CUdevResource*, unsigned* count, const CUdevResource*,
                                      CUdevResource*, unsigned,
                                      unsigned) { return *count = 16, CUDA_SUCCESS; },
    .cuDevResourceGenerateDesc = [](CUdevResourceDesc*, CUdevResource*,
                                    unsigned) { return CUDA_SUCCESS; },
    .cuGreenCtxCreate =
        [](CUgreenCtx* green, CUdevResourceDesc, CUdevice, unsigned) {
          *green = the_gpu->new_green();
          return CUDA_SUCCESS;
        },
    .cuGreenCtxDestroy = [](CUgreenCtx) { return CUDA_SUCCESS; },
    .cuCtxFromGreenCtx =
        [](CUcontext* context, CUgreenCtx green) {
          *context = reinterpret_cast<CUcontext>(green);
          return CUDA_SUCCESS;
        },
    .cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx, unsigned,
                                 int) { return *stream = the_gpu->create(false), CUDA_SUCCESS; },
};

}  // namespace

const Driver* driver() { return &kDriver; }

}  // namespace gpushare::shim
