// SPDX-License-Identifier: Apache-2.0
// What the API functions have in common: every one that needs a context begins with GS_CURRENT.
#pragma once

#include "intercept/sim/libcuda/runtime.h"

// Leaves the function with the reason when the calling thread has no usable context. Afterwards
// `runtime` and `context` are there. (A macro because it returns.)
#define GS_CURRENT()                                                     \
  const ::gpushare::standin::Current now = gpushare::standin::current(); \
  if (now.status != CUDA_SUCCESS) return now.status;                     \
  [[maybe_unused]] ::gpushare::standin::Runtime& runtime = *now.runtime; \
  [[maybe_unused]] ::gpushare::standin::Context& context = *now.context
