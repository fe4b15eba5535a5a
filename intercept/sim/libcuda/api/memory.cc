// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for memory, copies and fills.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/captures.h"

using namespace gpushare::standin;

namespace {

enum class Wait { kNo, kYes };

// A synchronous call waits for its work unless it was captured.
CUresult finish(const Current& now, const std::shared_ptr<Stream>& stream, const Made& made,
                Wait wait) {
  if (made.result != CUDA_SUCCESS) return made.result;
  const auto [result, sequence] = perform(*now.runtime, now.context, stream, made.operation);
  if (result != CUDA_SUCCESS || wait == Wait::kNo || sequence == 0) return result;
  return now.runtime->wait(*now.context, {sequence});
}

CUresult copy(const Current& now, CUstream handle, void* to, const void* from, size_t bytes,
              Direction direction, Wait wait) {
  Runtime& runtime = *now.runtime;
  const auto stream = runtime.stream(*now.context, handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  // As with the driver, a program may change pageable memory as soon as the call returns, and has
  // its data when a copy into pageable memory returns. In a graph each launch reads the memory.
  const bool is_staged = direction == Direction::kHostToDevice && wait == Wait::kNo &&
                         !runtime.memory.is_pinned_host(from, bytes) &&
                         runtime.captures().status(*stream) == CU_STREAM_CAPTURE_STATUS_NONE;
  if (direction == Direction::kDeviceToHost && !runtime.memory.is_pinned_host(to, bytes))
    wait = Wait::kYes;
  const auto made =
      make_copy(runtime, sms_of(*now.context, *stream), to, from, bytes, direction, is_staged);
  return finish(now, stream, made, wait);
}

CUresult fill(CUstream handle, CUdeviceptr to, unsigned value, unsigned element_bytes, size_t count,
              Wait wait) {
  GS_CURRENT();
  const auto stream = runtime.stream(context, handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (count == 0) return CUDA_SUCCESS;
  return finish(now, stream,
                make_fill(runtime, sms_of(context, *stream), to, value, element_bytes, count),
                wait);
}

void* host(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

// Waits for the work of the memory's context, as the driver does, and then frees the memory.
std::pair<CUresult, MemoryRange> release(Runtime& runtime, void* memory, bool is_device) {
  const auto range = runtime.memory.range_at(memory);
  if (!range) return {CUDA_ERROR_INVALID_VALUE, {}};
  if (const auto owner = runtime.contexts.find(reinterpret_cast<CUcontext>(range->context))) {
    const CUresult waited = runtime.wait(*owner, runtime.pending(*owner));
    if (waited != CUDA_SUCCESS) return {waited, {}};
  }
  const auto removed = runtime.memory.remove(memory, is_device);
  return removed ? std::pair{CUDA_SUCCESS, *removed} : std::pair{CUDA_ERROR_INVALID_VALUE, *range};
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  GS_CURRENT();
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = runtime.client().memory(context.device->about.index);
  if (!memory) return to_cuda(memory.error());
  *free_bytes = memory->free_bytes;
  *total_bytes = memory->total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto remote = runtime.client().allocate(context.remote, bytes);
  if (!remote) return to_cuda(remote.error());
  void* memory = runtime.memory.add(
      {.bytes = bytes, .is_device = true, .context = number_of(context.handle), .remote = *remote});
  if (memory == nullptr) {
    static_cast<void>(runtime.client().free(*remote));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  if (pointer == 0) return CUDA_SUCCESS;
  const auto [result, range] = release(runtime, host(pointer), true);
  if (result != CUDA_SUCCESS) return result;
  const auto freed = runtime.client().free(range.remote);
  return freed ? CUDA_SUCCESS : to_cuda(freed.error());
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  const unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = runtime.memory.add(
      {.bytes = bytes, .context = number_of(context.handle), .host_flags = flags});
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void* pointer) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  return release(runtime, pointer, false).first;
}

// The memory stays where it is, and is the program's own.
CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (memory == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool is_new = runtime.memory.add_registered(
      memory, {.bytes = bytes, .context = number_of(context.handle), .host_flags = flags});
  return is_new ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* memory) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  const auto range = runtime.memory.range_at(memory);
  const auto owner =
      range ? runtime.contexts.find(reinterpret_cast<CUcontext>(range->context)) : nullptr;
  if (owner) {
    const CUresult waited = runtime.wait(*owner, runtime.pending(*owner));
    if (waited != CUDA_SUCCESS) return waited;
  }
  return runtime.memory.remove_registered(memory) ? CUDA_SUCCESS
                                                  : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* memory, unsigned flags) {
  GS_CURRENT();
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto range = runtime.memory.range_at(memory);
  if (!range || range->is_device) return CUDA_ERROR_INVALID_VALUE;
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

// For memory that it does not know all attributes are 0, as with the driver. No memory is managed
// or has SYNC_MEMOPS.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == 0 || attributes == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = runtime->memory.range_at(host(pointer));
  const auto owner =
      range ? runtime->contexts.find(reinterpret_cast<CUcontext>(range->context)) : nullptr;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(values[i]) = owner ? owner->handle : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(values[i]) = !range             ? CUmemorytype{}
                                                 : range->is_device ? CU_MEMORYTYPE_DEVICE
                                                                    : CU_MEMORYTYPE_HOST;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = owner ? owner->device->ordinal : 0;
        break;
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<bool*>(values[i]) = false;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!runtime->memory.range_at(host(pointer))) return CUDA_ERROR_INVALID_VALUE;
  return cuPointerGetAttributes(1, &attribute, &value, pointer);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  GS_CURRENT();
  return copy(now, nullptr, host(to), from, bytes, Direction::kHostToDevice, Wait::kYes);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  GS_CURRENT();
  return copy(now, nullptr, to, host(from), bytes, Direction::kDeviceToHost, Wait::kYes);
}
// Does not wait, as the driver does not.
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  GS_CURRENT();
  return copy(now, nullptr, host(to), host(from), bytes, Direction::kDeviceToDevice, Wait::kNo);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  GS_CURRENT();
  return copy(now, stream, host(to), from, bytes, Direction::kHostToDevice, Wait::kNo);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  GS_CURRENT();
  return copy(now, stream, to, host(from), bytes, Direction::kDeviceToHost, Wait::kNo);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  GS_CURRENT();
  return copy(now, stream, host(to), host(from), bytes, Direction::kDeviceToDevice, Wait::kNo);
}

// A fill of device memory does not wait; one of pinned host memory does.
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  const Runtime* runtime = Runtime::get();
  const bool is_device = runtime != nullptr && runtime->memory.is_device(host(to));
  return fill(nullptr, to, value, 1, count, is_device ? Wait::kNo : Wait::kYes);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  const Runtime* runtime = Runtime::get();
  const bool is_device = runtime != nullptr && runtime->memory.is_device(host(to));
  return fill(nullptr, to, value, 4, count, is_device ? Wait::kNo : Wait::kYes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(stream, to, value, 1, count, Wait::kNo);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(stream, to, value, 4, count, Wait::kNo);
}
