// SPDX-License-Identifier: Apache-2.0
// Calls by which something goes that work on the GPU may use, and others that wait for all work of
// a context by the way. On the program's thread. Part of wrappers.cc.
#pragma once

#include <type_traits>

#include "intercept/shim/calls/told_calls.h"
#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/graphs/context_waits.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

// The context to which the memory belongs; null: it is not known.
inline CUcontext context_with(CUdeviceptr memory) {
  using Ask = CUresult (*)(void*, int, CUdeviceptr);
  static constinit DriverFunction<Ask> function("cuPointerGetAttribute");
  constexpr int kContext = 1;
  const KeepErrno errno_of_the_program;
  CUcontext context = nullptr;
  const Ask ask = function.get();
  return ask != nullptr && ask(&context, kContext, memory) == CUDA_SUCCESS ? context : nullptr;
}

// The driver waits for the work of the context to which the memory belongs, or of the current one.
template <int index, class Thing>
void before_release(Thing thing) {
  Streams* const all = Streams::get();
  if (all == nullptr || !all->has_graphs() || thing == Thing{}) return;  // null: nothing goes
  CUcontext context = nullptr;
  if constexpr (std::is_same_v<Thing, CUdeviceptr>)
    context = context_with(thing);
  else if constexpr (is_called<index>("cuMemFreeHost") || is_called<index>("cuMemHostUnregister"))
    context = context_with(reinterpret_cast<CUdeviceptr>(thing));
  before_context_wait(*all, context);
}
// A module is loaded.
template <int index, class First, class Second, class... Rest>
void before_release(First, Second, const Rest&...) {
  if (Streams* all = Streams::get()) before_context_wait(*all, nullptr);
}

}  // namespace gpushare::shim
