// SPDX-License-Identifier: Apache-2.0
// The functions of the driver by which streams wait for a word of memory, and those that go with
// them. They are apart from driver.h, because a driver without them is good enough for all else.
// Any thread. driver() of this file is a seam: tests bring another.
#pragma once

#include "intercept/shim/driver/driver_types.h"

namespace gpushare::shim {

struct MemoryDriver {
#define GS_MEMORY_FUNCTIONS(X)                                            \
  X(cuCtxGetCurrent, (CUcontext*))                                        \
  X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned*, int*))              \
  X(cuEventCreate, (CUevent*, unsigned))                                  \
  X(cuEventElapsedTime, (float*, CUevent, CUevent))                       \
  X(cuEventQuery, (CUevent))                                              \
  X(cuEventRecord, (CUevent, CUstream))                                   \
  X(cuMemHostGetDevicePointer_v2, (CUdeviceptr*, void*, unsigned))        \
  X(cuMemHostRegister_v2, (void*, size_t, unsigned))                      \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))              \
  X(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned))  \
  X(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned)) \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))
  GS_MEMORY_FUNCTIONS(GS_FUNCTION_POINTER)
  // Null with a driver before 12.3.
  CUresult (*cuFuncGetName)(const char**, CUfunction);
  CUresult (*cuKernelGetName)(const char**, CUkernel);
};

// Null: the driver lacks one of them, other than the last two.
const MemoryDriver* memory_driver();

}  // namespace gpushare::shim
