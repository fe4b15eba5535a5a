// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for memory whose addresses, pages and mappings are made in
// separate calls: memory of a device for one process, without handles for other processes.
#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/memory/mappings.h"

using namespace gpushare::standin;

namespace {

// True for the kind of memory that the stand-in can make.
CUresult check(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  GS_DEVICE(properties->location.id);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  if (bytes == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult checked = check(properties); checked != CUDA_SUCCESS) return checked;
  *bytes = Mappings::kGranularity;
  return CUDA_SUCCESS;
}

// The wanted address is only a hint, which the stand-in ignores.
CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  GS_CURRENT();
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t address = 0;
  const CUresult result = runtime.mappings.reserve(bytes, alignment, &address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  GS_CURRENT();
  return runtime.mappings.free(pointer, bytes);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  GS_CURRENT();
  if (handle == nullptr || bytes == 0 || bytes % Mappings::kGranularity != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult checked = check(properties); checked != CUDA_SUCCESS) return checked;
  const auto remote = runtime.client().allocate(context.remote, bytes);
  if (!remote) return to_cuda(remote.error());
  return runtime.mappings.make(
      bytes, [&runtime, remote = *remote] { static_cast<void>(runtime.client().free(remote)); },
      handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  GS_CURRENT();
  return runtime.mappings.release(handle);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  GS_CURRENT();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return runtime.mappings.map(pointer, bytes, offset, handle);
}

// Waits for the context's work, which may use the memory.
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  GS_CURRENT();
  const CUresult waited = runtime.wait(context, runtime.pending(context));
  return waited == CUDA_SUCCESS ? runtime.mappings.unmap(pointer, bytes) : waited;
}

// All devices of the simulation see the same memory, so the last access that is set holds for all.
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  GS_CURRENT();
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult set = runtime.mappings.set_access(pointer, bytes, access[i].flags);
    if (set != CUDA_SUCCESS) return set;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) {
  GS_CURRENT();
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  CUmemAccess_flags found{};
  const CUresult result = runtime.mappings.get_access(pointer, &found);
  if (result == CUDA_SUCCESS) *flags = found;
  return result;
}
