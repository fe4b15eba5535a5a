// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for green contexts, as far as streams in parts of a GPU need
// them. A group is 8 SMs in the order of their numbers. As on an H200, a split leaves SMs over: of
// 132 SMs it gives 15 groups of 8, and 12 SMs remain.
#include <algorithm>
#include <bit>
#include <cstring>

#include "intercept/sim/libcuda/api/api.h"

using namespace gpushare::standin;

namespace {

// The groups of a resource, which are kept in its padding as the driver does; none means the whole
// device.
uint64_t groups_of(const CUdevResource& resource) {
  uint64_t groups = 0;
  std::memcpy(&groups, resource._internal_padding, sizeof groups);
  return groups;
}

// The last group of a GPU may have fewer SMs.
unsigned groups_in(unsigned sm_count) { return (sm_count + kSmsOfGroup - 1) / kSmsOfGroup; }

uint64_t groups_before(unsigned count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

CUdevResource resource_of(uint64_t groups, uint32_t sm_count) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  std::memcpy(resource._internal_padding, &groups, sizeof groups);
  resource.sm = {sm_count, kSmsOfGroup, kSmsOfGroup};
  return resource;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  GS_DEVICE(device);
  if (resource == nullptr || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  *resource = resource_of(0, found->about.sm_count);
  return CUDA_SUCCESS;
}

// Splits only a whole device, into parts of as many groups as `least` SMs need.
CUresult cuDevSmResourceSplitByCount(CUdevResource* parts, unsigned* count,
                                     const CUdevResource* whole, CUdevResource* rest,
                                     unsigned flags, unsigned least) {
  if (count == nullptr || whole == nullptr || whole->type != CU_DEV_RESOURCE_TYPE_SM ||
      groups_of(*whole) != 0 || flags != 0 || least == 0 || least > whole->sm.smCount)
    return CUDA_ERROR_INVALID_VALUE;
  const unsigned groups = split_groups(whole->sm.smCount);
  const unsigned of_part = (least + kSmsOfGroup - 1) / kSmsOfGroup;
  const unsigned there = groups / of_part;
  if (there == 0) return CUDA_ERROR_INVALID_VALUE;
  if (parts == nullptr) {
    *count = there;
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, there);
  for (unsigned i = 0; i < *count; ++i)
    parts[i] = resource_of(groups_before(of_part) << (i * of_part), of_part * kSmsOfGroup);
  const unsigned split = *count * of_part;
  if (rest != nullptr)
    *rest = resource_of(groups_before(groups_in(whole->sm.smCount)) & ~groups_before(split),
                        whole->sm.smCount - split * kSmsOfGroup);
  return CUDA_SUCCESS;
}

// The descriptor is the set of groups itself.
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources,
                                   unsigned count) {
  if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t groups = 0;
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t more = groups_of(resources[i]);
    if (more == 0 || (groups & more) != 0) return CUDA_ERROR_INVALID_VALUE;
    groups |= more;
  }
  *description = reinterpret_cast<CUdevResourceDesc>(groups);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc description, CUdevice device,
                          unsigned flags) {
  if (green == nullptr || description == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  CUcontext primary = nullptr;
  if (const CUresult held = cuDevicePrimaryCtxRetain(&primary, device); held != CUDA_SUCCESS)
    return held;
  // The driver waits for the work of the context, too (bench/gpu/driver/blocking.cc): a kernel
  // that waits for the host blocks this call.
  if (const auto context = runtime->contexts.find(primary))
    runtime->wait(*context, runtime->all_work(*context));
  const auto made = std::make_shared<Green>(nullptr, number_of(primary), found,
                                            reinterpret_cast<uint64_t>(description));
  *green = runtime->greens.add(made);
  made->handle = reinterpret_cast<CUcontext>(*green);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto removed = runtime->greens.remove(green);
  if (!removed) return CUDA_ERROR_INVALID_HANDLE;
  return cuDevicePrimaryCtxRelease_v2(removed->device->ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!runtime->greens.find(green)) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (stream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const auto found = runtime->greens.find(green);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  const auto context = runtime->contexts.find(reinterpret_cast<CUcontext>(found->context));
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  // The driver waits only now and then, when it must make room; the strict stand-in always does.
  if (Runtime::is_strict()) runtime->wait(*context, runtime->all_work(*context));
  const auto created = runtime->new_stream(*context, flags);
  created->sm_groups = found->sm_groups;
  created->green = reinterpret_cast<CUcontext>(green);
  *stream = runtime->streams.add(created);
  return CUDA_SUCCESS;
}
