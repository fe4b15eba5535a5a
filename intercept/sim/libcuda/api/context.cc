// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for contexts and for each thread's stack of current ones.
#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/captures.h"

using namespace gpushare::standin;

namespace {

bool is_live(const Runtime& runtime, CUcontext context) {
  return runtime.contexts.find(context) != nullptr || green_of(runtime, context) != nullptr;
}

}  // namespace

// --- the primary context of a device ------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  const std::lock_guard lock(found->mutex);
  if (found->primary_users == 0) {
    const CUresult made =
        runtime->create_context(*found, found->primary_flags, true, &found->primary);
    if (made != CUDA_SUCCESS) return made;
  }
  ++found->primary_users;
  *context = found->primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  GS_DEVICE(device);
  const std::lock_guard lock(found->mutex);
  if (found->primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--found->primary_users > 0) return CUDA_SUCCESS;
  return runtime->destroy_context(std::exchange(found->primary, nullptr));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  GS_DEVICE(device);
  const std::lock_guard lock(found->mutex);
  if (found->primary_users == 0) return CUDA_SUCCESS;
  found->primary_users = 0;
  return runtime->destroy_context(std::exchange(found->primary, nullptr));
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  GS_DEVICE(device);
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(found->mutex);
  found->primary_flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* is_active) {
  GS_DEVICE(device);
  const std::lock_guard lock(found->mutex);
  if (flags != nullptr) *flags = found->primary_flags;
  if (is_active != nullptr) *is_active = found->primary_users > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

// --- contexts that a program makes
// ----------------------------------------------------------------------

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  if (context == nullptr || (flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  if (const CUresult made = runtime->create_context(*found, flags, false, context);
      made != CUDA_SUCCESS)
    return made;
  context_stack().push_back(*context);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
                        CUdevice device) {
  if (parameters != nullptr &&
      (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->contexts.find(context);
  if (!found || found->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return runtime->destroy_context(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!is_live(*runtime, context)) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (Runtime::get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

// A null context removes the current one from the stack.
CUresult cuCtxSetCurrent(CUcontext context) {
  const Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (context != nullptr && !is_live(*runtime, context)) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = context_stack();
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (Runtime::get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = context_stack().empty() ? nullptr : context_stack().back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  GS_CURRENT();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context.device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  GS_CURRENT();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context.flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  const Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context != nullptr && !is_live(*runtime, context)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;  // the version of the _v2 calls, as in the driver
  return CUDA_SUCCESS;
}

// The range is that of an H200.
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  GS_CURRENT();
  if (least != nullptr) *least = gpushare::standin::kLeastPriority;
  if (greatest != nullptr) *greatest = gpushare::standin::kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_wait(context); refused != CUDA_SUCCESS)
    return refused;
  return runtime.wait(context,
                      now.green ? runtime.pending(context, *now.green) : runtime.pending(context));
}
