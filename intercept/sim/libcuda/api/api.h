// SPDX-License-Identifier: Apache-2.0
// What the API functions of the stand-in have in common: a function that needs a context begins
// with GS_CURRENT, one that needs a stream with GS_STREAM, and one that needs a device with
// GS_DEVICE. Any thread of the program may call.
#pragma once

#include "intercept/sim/libcuda/runtime/runtime.h"

// Returns from the function with an error when the calling thread has no usable context; otherwise
// declares `runtime` and `context`. It is a macro because it returns.
#define GS_CURRENT()                                                     \
  const ::gpushare::standin::Current now = gpushare::standin::current(); \
  if (now.status != CUDA_SUCCESS) return now.status;                     \
  [[maybe_unused]] ::gpushare::standin::Runtime& runtime = *now.runtime; \
  [[maybe_unused]] ::gpushare::standin::Context& context = *now.context

// The same, and declares `found`, the context's stream of that handle.
#define GS_STREAM(handle)                             \
  GS_CURRENT();                                       \
  const auto found = runtime.stream(context, handle); \
  if (!found) return CUDA_ERROR_INVALID_HANDLE

// Returns from the function with an error when there is no such device; otherwise declares
// `runtime` and `found`, the device.
#define GS_DEVICE(ordinal)                                             \
  [[maybe_unused]] ::gpushare::standin::Runtime* const runtime =       \
      ::gpushare::standin::Runtime::get();                             \
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;           \
  ::gpushare::standin::Device* const found = runtime->device(ordinal); \
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE
