// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for start-up and devices.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "intercept/sim/libcuda/api/api.h"
#include "shmctl/plane/fields.h"

using namespace gpushare::standin;
using gpushare::text_in;

namespace {

// Copies the text, cut so that a terminating zero fits.
CUresult copy_text(std::string_view text, char* to, int length) {
  if (to == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t count = std::min(text.size(), static_cast<size_t>(length) - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
  return CUDA_SUCCESS;
}

// The domain, bus and device in "0000:1b:00.0".
struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0;
};
PciAddress pci_address(const Device& device) {
  PciAddress pci;
  std::sscanf(device.about.pci, "%x:%x:%x", &pci.domain, &pci.bus, &pci.device);
  return pci;
}

// The attributes of an H200, unless the simulated machine has others.
std::optional<int> attribute_of(const Device& device, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 49152;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return static_cast<int>(device.about.sm_count);
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
      return 0;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return static_cast<int>(pci_address(device).domain);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return static_cast<int>(pci_address(device).bus);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return static_cast<int>(pci_address(device).device);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
  }
  return std::nullopt;
}

// Writes what `of` says of the device to `*to`.
template <class T, class Of>
CUresult tell(T* to, CUdevice device, Of of) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  *to = of(*found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuInit(unsigned flags) { return flags == 0 ? Runtime::start() : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kCudaApiVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *count = runtime->device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return tell(device, ordinal, [](const Device& found) { return found.ordinal; });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  GS_DEVICE(device);
  return copy_text(text_in(found->about.name), name, length);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  // The text is "GPU-" and 16 bytes in hexadecimal, with dashes between them.
  *uuid = {};
  size_t digits = 0;
  for (const char c : text_in(found->about.uuid).substr(4)) {
    const std::string_view hex = "0123456789abcdef";
    const size_t value = hex.find(c);
    if (value == std::string_view::npos || digits >= 32) continue;
    char& byte = uuid->bytes[digits++ / 2];
    byte = static_cast<char>(byte << 4 | static_cast<char>(value));
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return tell(bytes, device, [](const Device& found) { return found.about.memory_bytes; });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GS_DEVICE(device);
  const auto known = attribute_of(*found, attribute);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  *value = *known;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  GS_DEVICE(device);
  return copy_text(text_in(found->about.pci), text, length);
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  if (const CUresult result =
          cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
      result != CUDA_SUCCESS)
    return result;
  return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}
