// SPDX-License-Identifier: Apache-2.0
// What the API functions of the stand-in have in common: a function that needs a context begins
// with GS_CURRENT, and one that needs a device with find_device(). Any thread of the program may
// call.
#pragma once

#include "intercept/sim/libcuda/runtime/runtime.h"

// Returns from the function with an error when the calling thread has no usable context; otherwise
// declares `runtime` and `context`. It is a macro because it returns.
#define GS_CURRENT()                                                     \
  const ::gpushare::standin::Current now = gpushare::standin::current(); \
  if (now.status != CUDA_SUCCESS) return now.status;                     \
  [[maybe_unused]] ::gpushare::standin::Runtime& runtime = *now.runtime; \
  [[maybe_unused]] ::gpushare::standin::Context& context = *now.context

namespace gpushare::standin {

// Finds the device and its runtime, or returns why there is none.
inline CUresult find_device(CUdevice ordinal, Runtime** runtime, Device** device) {
  *runtime = Runtime::get();
  if (*runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *device = (*runtime)->device(ordinal);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
inline CUresult find_device(CUdevice ordinal, Device** device) {
  Runtime* runtime = nullptr;
  return find_device(ordinal, &runtime, device);
}

}  // namespace gpushare::standin
