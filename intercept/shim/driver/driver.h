// SPDX-License-Identifier: Apache-2.0
// The functions of the driver that the shim calls for itself, past its own wrappers. Any thread.
#pragma once

#include "intercept/shim/driver/driver_types.h"

namespace gpushare::shim {

struct Driver {
#define GS_DRIVER_FUNCTIONS(X)                                                             \
  X(cuCtxGetCurrent, (CUcontext*))                                                         \
  X(cuCtxGetDevice, (CUdevice*))                                                           \
  X(cuCtxGetFlags, (unsigned*))                                                            \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                      \
  X(cuCtxPopCurrent_v2, (CUcontext*))                                                      \
  X(cuDeviceGetPCIBusId, (char*, int, CUdevice))                                           \
  X(cuDriverGetVersion, (int*))                                                            \
  X(cuEventCreate, (CUevent*, unsigned))                                                   \
  X(cuEventDestroy_v2, (CUevent))                                                          \
  X(cuEventQuery, (CUevent))                                                               \
  X(cuEventRecord, (CUevent, CUstream))                                                    \
  X(cuEventSynchronize, (CUevent))                                                         \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                      \
  X(cuStreamCreate, (CUstream*, unsigned))                                                 \
  X(cuStreamQuery, (CUstream))                                                             \
  X(cuStreamDestroy_v2, (CUstream))                                                        \
  X(cuStreamGetFlags, (CUstream, unsigned*))                                               \
  X(cuStreamGetPriority, (CUstream, int*))                                                 \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                               \
  X(cuStreamEndCapture, (CUstream, CUgraph*))                                              \
  X(cuGraphDestroy, (CUgraph))                                                             \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))                             \
  X(cuStreamCopyAttributes, (CUstream, CUstream))                                          \
  X(cuDeviceGetDevResource, (CUdevice, CUdevResource*, CUdevResourceType))                 \
  X(cuDevSmResourceSplitByCount,                                                           \
    (CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned, unsigned)) \
  X(cuDevResourceGenerateDesc, (CUdevResourceDesc*, CUdevResource*, unsigned))             \
  X(cuGreenCtxCreate, (CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned))                \
  X(cuGreenCtxDestroy, (CUgreenCtx))                                                       \
  X(cuCtxFromGreenCtx, (CUcontext*, CUgreenCtx))                                           \
  X(cuGreenCtxStreamCreate, (CUstream*, CUgreenCtx, unsigned, int))
  GS_FUNCTIONS(GS_DRIVER_FUNCTIONS)
};

// The newest API whose functions hooks.def lists, as cuDriverGetVersion says it. A program may get
// from a newer driver functions that the shim does not know, whose order with others it cannot
// keep. What 13.1 to 13.3 added is from NVIDIA's cuda-python, which declares every function with
// its parameters, and what 13.4 added from its release notes and the reference of the driver API.
inline constexpr int kNewestKnown = 13040;

// Null: the driver is not loaded, or lacks one of them because it is too old.
const Driver* driver();
}  // namespace gpushare::shim
