// SPDX-License-Identifier: Apache-2.0
// Copies and fills on the GPU that name no stream. In a partition they are made by their
// asynchronous forms, in the stand-in of the default stream, if these mean the same: CUDA says
// ("API synchronization behavior") that between plain memory of the device neither form waits. The
// program's own call runs at home if the driver may wait (for pinned or managed memory, memory of
// another device, SYNC_MEMOPS) or if a stream captures. To ask the driver which memory it is takes
// less than the way home and back. On the program's thread. Part of wrappers.cc.
#pragma once

#include <type_traits>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {

// The asynchronous form of a function. Null: it has none, or its parameters do not say which memory
// it reads and writes.
template <int index>
constexpr const char* async_form = nullptr;
#define GS_ASYNC_FORM(symbol, form)                                \
  template <>                                                      \
  inline constexpr const char* async_form<kHook_##symbol> = #form; \
  template <>                                                      \
  inline constexpr const char* async_form<kHook_##symbol##_ptds> = #form;
GS_ASYNC_FORM(cuMemcpy, cuMemcpyAsync)
GS_ASYNC_FORM(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2)
GS_ASYNC_FORM(cuMemsetD8_v2, cuMemsetD8Async)
GS_ASYNC_FORM(cuMemsetD16_v2, cuMemsetD16Async)
GS_ASYNC_FORM(cuMemsetD32_v2, cuMemsetD32Async)
GS_ASYNC_FORM(cuMemsetD2D8_v2, cuMemsetD2D8Async)
GS_ASYNC_FORM(cuMemsetD2D16_v2, cuMemsetD2D16Async)
GS_ASYNC_FORM(cuMemsetD2D32_v2, cuMemsetD2D32Async)
#undef GS_ASYNC_FORM

// Returns false if all calls in the current context wait, or if the driver does not say.
bool may_context_go_on();
// Returns true for memory of `device` itself that makes no call wait.
bool is_plain_memory(CUdeviceptr pointer, CUdevice device);

// The form to call instead; null: the program's own call is to run at home. REQUIRES: `use` is
// away.
template <int index, class... Parameters>
auto async_form_of(const StreamUse& use, const Parameters&... arguments) {
  using Form = CUresult (*)(Parameters..., CUstream);
  if (Streams::get()->is_any_capturing()) return Form{nullptr};
  const KeepErrno errno_of_the_program;
  const auto is_plain = [&]<class T>(const T& argument) {
    if constexpr (std::is_same_v<T, CUdeviceptr>)
      return is_plain_memory(argument, use.stream()->device->ordinal);
    return true;
  };
  if (!may_context_go_on() || !(is_plain(arguments) && ...)) return Form{nullptr};
  static constinit DriverFunction<Form> form(async_form<index>);
  return form.get();
}

}  // namespace gpushare::shim
