// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/copies.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

// Values of CUmemorytype, and the pointer attribute that gives one.
constexpr unsigned kHost = 1, kUnified = 4;
constexpr int kMemoryType = 2;

bool is_of_host(CUdeviceptr pointer) {
  using Ask = CUresult (*)(void*, int, CUdeviceptr);
  static constinit DriverFunction<Ask> function("cuPointerGetAttribute");
  const Ask ask = function.get();
  if (ask == nullptr) return false;
  unsigned type = 0;
  const CUresult result = ask(&type, kMemoryType, pointer);
  // For ordinary host memory the driver answers that the pointer is not valid.
  return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == kHost);
}

CopyWay way_of(bool is_to_host, bool is_from_host) {
  if (is_to_host == is_from_host) return CopyWay::kOnGpu;
  return is_to_host ? CopyWay::kFromGpu : CopyWay::kToGpu;
}

// Where the members of a description lie, in words of 8 bytes. After a type come the pointer of the
// host and that of the device.
struct Places {
  int from_type, to_type, width, dimensions;
};
constexpr Places k2d{2, 9, 14, 2}, k3d{4, 15, 22, 3};

bool is_end_of_host(const uint64_t* words, int type) {
  const auto kind = static_cast<unsigned>(words[type]);
  return kind == kHost || (kind == kUnified && is_of_host(words[type + 2]));
}

}  // namespace

CopyTold copy_between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  return {way_of(is_of_host(to), is_of_host(from)), bytes};
}

CopyTold shaped_copy(const void* description, bool is_3d) {
  if (description == nullptr) return {CopyWay::kOnGpu, 0};
  const auto* words = static_cast<const uint64_t*>(description);
  const Places& places = is_3d ? k3d : k2d;
  uint64_t bytes = 1;
  for (int i = 0; i < places.dimensions; ++i) bytes *= words[places.width + i];
  return {way_of(is_end_of_host(words, places.to_type), is_end_of_host(words, places.from_type)),
          bytes};
}

}  // namespace gpushare::shim
