// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the stand-in libcuda: one server of a simulated GPU for the whole
// test program, because the stand-in connects once per process, and for every test a context with
// the workloads' kernels.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "intercept/cuda/cuda_api.h"
#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/kernels.ptx.h"

namespace gpushare {

#define GS_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

class CudaStandin : public testing::Test {
 protected:
  void SetUp() override {
    GS_OK(cuInit(0));
    GS_OK(cuCtxCreate_v2(&context_, 0, 0));
    GS_OK(cuModuleLoadData(&module_, workloads::kKernels));
  }
  void TearDown() override { EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS); }

  // A part of the first device with its first 8 SMs.
  static void make_part(CUgreenCtx* green) {
    CUdevResource whole{}, group{};
    unsigned count = 1;
    GS_OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    GS_OK(cuDevSmResourceSplitByCount(&group, &count, &whole, nullptr, 0, 8));
    CUdevResourceDesc description = nullptr;
    GS_OK(cuDevResourceGenerateDesc(&description, &group, 1));
    GS_OK(cuGreenCtxCreate(green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  }
  CUfunction kernel(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS) << name;
    return function;
  }
  CUstream stream(unsigned flags = CU_STREAM_DEFAULT) {
    CUstream created = nullptr;
    EXPECT_EQ(cuStreamCreate(&created, flags), CUDA_SUCCESS);
    return created;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent created = nullptr;
    EXPECT_EQ(cuEventCreate(&created, flags), CUDA_SUCCESS);
    return created;
  }
  CUdeviceptr words(size_t count, uint32_t value = 0) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, count * 4), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32_v2(memory, value, count), CUDA_SUCCESS);
    return memory;
  }
  std::vector<uint32_t> read(CUdeviceptr from, size_t count) {
    std::vector<uint32_t> data(count);
    EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), from, count * 4), CUDA_SUCCESS);
    return data;
  }
  template <class... Parameters>
  CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                  Parameters... parameters) {
    void* pointers[] = {&parameters..., nullptr};
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr);
  }

  // An endless kernel of one block in a stream. The work behind it waits until open().
  class Barrier {
   public:
    Barrier(CudaStandin& test, CUstream in) {
      void* memory = nullptr;
      EXPECT_EQ(cuMemHostAlloc(&memory, 16, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
      turns_ = static_cast<uint64_t*>(memory);
      CUdeviceptr device = 0;
      EXPECT_EQ(cuMemHostGetDevicePointer_v2(&device, memory, 0), CUDA_SUCCESS);
      EXPECT_EQ(test.launch(test.kernel("gs_endless"), 1, 32, in, device, device + 8, test.words(1),
                            1u, 10u, kernels::kRound.mul, kernels::kRound.add),
                CUDA_SUCCESS);
    }
    void open() { std::atomic_ref(turns_[1]).store(1); }
    uint64_t turns() const { return std::atomic_ref(turns_[0]).load(); }

   private:
    uint64_t* turns_ = nullptr;  // and the stop flag
  };

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace gpushare
