// SPDX-License-Identifier: Apache-2.0
// Tests those properties of mapped memory in the stand-in libcuda that only a simulated GPU shows.
// tests/conformance has the properties that a program may rely on.
#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

constexpr size_t kPage = size_t{2} << 20;

class CudaStandinMapping : public CudaStandin {
 protected:
  static size_t free_bytes() {
    size_t now = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo_v2(&now, &total), CUDA_SUCCESS);
    return now;
  }
  static CUmemAllocationProp on_device(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
  }
};

TEST_F(CudaStandinMapping, MadeMemoryIsTheGpusUntilNothingNeedsIt) {
  const size_t before = free_bytes();
  const CUmemAllocationProp properties = on_device(0);
  CUmemGenericAllocationHandle memory = 0;
  GS_OK(cuMemCreate(&memory, 3 * kPage, &properties, 0));
  EXPECT_EQ(free_bytes(), before - 3 * kPage);
  CUdeviceptr addresses = 0;
  GS_OK(cuMemAddressReserve(&addresses, 3 * kPage, 16 * kPage, 0, 0));
  EXPECT_EQ(addresses % (16 * kPage), 0u);
  EXPECT_EQ(free_bytes(), before - 3 * kPage) << "addresses cost nothing";
  GS_OK(cuMemMap(addresses, 3 * kPage, 0, memory, 0));
  GS_OK(cuMemRelease(memory));
  EXPECT_EQ(free_bytes(), before - 3 * kPage) << "it is mapped";
  GS_OK(cuMemUnmap(addresses, 3 * kPage));
  EXPECT_EQ(free_bytes(), before);
  GS_OK(cuMemAddressFree(addresses, 3 * kPage));
}

TEST_F(CudaStandinMapping, MoreThanThereIsIsRefused) {
  const CUmemAllocationProp properties = on_device(0), nowhere = on_device(7);
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(cuMemCreate(&memory, (free_bytes() / kPage + 1) * kPage, &properties, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemCreate(&memory, kPage, &nowhere, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(CudaStandinMapping, WithoutAccessAKernelFails) {
  const CUmemAllocationProp properties = on_device(0);
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr addresses = 0;
  GS_OK(cuMemCreate(&memory, kPage, &properties, 0));
  GS_OK(cuMemAddressReserve(&addresses, kPage, 0, 0, 0));
  GS_OK(cuMemMap(addresses, kPage, 0, memory, 0));
  EXPECT_EQ(cuMemsetD32_v2(addresses, 1, 1), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  GS_OK(cuMemSetAccess(addresses, kPage, &access, 1));
  GS_OK(cuMemsetD32_v2(addresses, 1, kPage / 4));
  EXPECT_EQ(cuMemsetD32_v2(addresses, 1, kPage / 4 + 1), CUDA_ERROR_INVALID_VALUE);
  GS_OK(cuMemUnmap(addresses, kPage));
  EXPECT_EQ(cuMemsetD32_v2(addresses, 1, 1), CUDA_ERROR_INVALID_VALUE);
  GS_OK(cuMemAddressFree(addresses, kPage));
  GS_OK(cuMemRelease(memory));
}

}  // namespace
}  // namespace gpushare
