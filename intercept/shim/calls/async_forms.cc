// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/calls/async_forms.h"

#include <iterator>

namespace gpushare::shim {
namespace {

using GetFlags = CUresult (*)(unsigned*);
using GetAttributes = CUresult (*)(unsigned, CUpointer_attribute*, void**, CUdeviceptr);
constinit DriverFunction<GetFlags> get_flags("cuCtxGetFlags");
constinit DriverFunction<GetAttributes> get_attributes("cuPointerGetAttributes");

}  // namespace

bool may_context_go_on() {
  const GetFlags ask = get_flags.get();
  unsigned flags = 0;
  return ask != nullptr && ask(&flags) == CUDA_SUCCESS && (flags & CU_CTX_SYNC_MEMOPS) == 0;
}

bool is_plain_memory(CUdeviceptr pointer, CUdevice device) {
  const GetAttributes ask = get_attributes.get();
  if (ask == nullptr) return false;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
  // The driver writes one byte or four, depending on the attribute; bytes not written stay 0.
  int type = 0, ordinal = -1, is_managed = 0, always_waits = 0;
  void* answers[] = {&type, &ordinal, &is_managed, &always_waits};
  return ask(std::size(attributes), attributes, answers, pointer) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE && ordinal == device && is_managed == 0 && always_waits == 0;
}

}  // namespace gpushare::shim
