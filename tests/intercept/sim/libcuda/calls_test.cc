// SPDX-License-Identifier: Apache-2.0
// Tests the stand-in libcuda's devices, contexts, memory, errors and effects of kernels.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

using kernels::kRound;

// --- devices and contexts -----------------------------------------------------------------------

TEST_F(CudaStandin, DescribesTheSimulatedDevices) {
  int count = 0, version = 0, sms = 0;
  GS_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  GS_OK(cuDriverGetVersion(&version));
  EXPECT_EQ(version, kCudaApiVersion);
  GS_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
  EXPECT_EQ(sms, 132);
  char name[64] = {}, cut[4] = {}, pci[32] = {};
  GS_OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_NE(std::string(name), "");
  GS_OK(cuDeviceGetName(cut, sizeof cut, 0));
  EXPECT_EQ(std::string(cut), std::string(name, 3));
  GS_OK(cuDeviceGetPCIBusId(pci, sizeof pci, 0));
  EXPECT_NE(std::string(pci), "");
  CUuuid first{}, second{}, none{};
  GS_OK(cuDeviceGetUuid_v2(&first, 0));
  GS_OK(cuDeviceGetUuid_v2(&second, 1));
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
  EXPECT_NE(std::memcmp(&first, &none, sizeof first), 0);
}

TEST_F(CudaStandin, RefusesDevicesThatAreNotThere) {
  CUdevice device = 0;
  int value = 0;
  EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
            CUDA_ERROR_INVALID_VALUE);
}

// What a thread, or the main thread at exit, does in the end: its objects that were there before
// its first call go after those that the library has made since.
TEST_F(CudaStandin, ADestructorAtTheEndOfAThreadStillHasItsContext) {
  struct AtEnd {
    std::function<void()> deed;
    ~AtEnd() {
      if (deed) deed();
    }
  };
  const CUfunction empty = kernel("gs_empty");
  CUcontext seen = nullptr;
  CUresult launched = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    thread_local AtEnd at_end;
    at_end.deed = [&] {
      EXPECT_EQ(cuCtxGetCurrent(&seen), CUDA_SUCCESS);
      if (seen == context_) launched = launch(empty, 1, 1, nullptr);
    };
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(seen, context_);
  EXPECT_EQ(launched, CUDA_SUCCESS);
  GS_OK(cuCtxSynchronize());
}

TEST_F(CudaStandin, EveryThreadHasItsOwnStackOfContexts) {
  CUcontext seen = context_;
  std::thread([&] { EXPECT_EQ(cuCtxGetCurrent(&seen), CUDA_SUCCESS); }).join();
  EXPECT_EQ(seen, nullptr);

  CUcontext second = nullptr, popped = nullptr;
  GS_OK(cuCtxCreate_v4(&second, nullptr, 0, 1));
  CUdevice device = -1;
  GS_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  GS_OK(cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(popped, second);
  GS_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 0);
  GS_OK(cuCtxPushCurrent_v2(second));
  GS_OK(cuCtxDestroy_v2(second));  // current, so it is popped
  GS_OK(cuCtxGetCurrent(&seen));
  EXPECT_EQ(seen, context_);
  EXPECT_EQ(cuCtxPushCurrent_v2(second), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(CudaStandin, ThePrimaryContextLivesWhileSomeoneHoldsIt) {
  CUcontext first = nullptr, second = nullptr;
  unsigned flags = 0;
  int is_active = -1;
  GS_OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(is_active, 0);
  GS_OK(cuDevicePrimaryCtxSetFlags_v2(1, CU_CTX_SCHED_BLOCKING_SYNC));
  GS_OK(cuDevicePrimaryCtxRetain(&first, 1));
  GS_OK(cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT_EQ(first, second);
  EXPECT_EQ(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
  GS_OK(cuDevicePrimaryCtxRelease_v2(1));
  GS_OK(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
  EXPECT_EQ(is_active, 1);
  EXPECT_EQ(flags, CU_CTX_SCHED_BLOCKING_SYNC);
  GS_OK(cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(CudaStandin, ADestroyedContextIsRecognisedWhereItIsStillCurrent) {
  CUcontext other = nullptr;
  GS_OK(cuCtxCreate_v2(&other, 0, 0));
  std::thread([&] { EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS); }).join();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  GS_OK(cuCtxPopCurrent_v2(&other));
  GS_OK(cuCtxSynchronize());
}

TEST_F(CudaStandin, WithoutAContextThereIsNoMemory) {
  CUcontext popped = nullptr;
  CUdeviceptr memory = 0;
  GS_OK(cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
  GS_OK(cuCtxPushCurrent_v2(popped));
}

// --- memory -------------------------------------------------------------------------------------

TEST_F(CudaStandin, AllocatedMemoryIsMissingFromTheFreeMemoryUntilFreed) {
  size_t before = 0, during = 0, after = 0, total = 0;
  GS_OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr memory = 0;
  GS_OK(cuMemAlloc_v2(&memory, size_t{10} << 30));
  GS_OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_EQ(before - during, size_t{10} << 30);
  GS_OK(cuMemFree_v2(memory));
  GS_OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(after, before);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaStandin, MemoryThatIsNotThereIsOutOfMemoryAndNothingElse) {
  size_t free_bytes = 0, total = 0;
  GS_OK(cuMemGetInfo_v2(&free_bytes, &total));
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  GS_OK(cuMemAlloc_v2(&memory, 1 << 20));  // the context goes on
  EXPECT_EQ(cuMemAlloc_v2(&memory, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaStandin, CopiesAndFillsMoveTheirBytesAndNoOthers) {
  const CUdeviceptr from = words(8, 0x01020304), to = words(8, 9);
  GS_OK(cuMemcpyDtoD_v2(to + 8, from, 8));
  GS_OK(cuMemsetD8_v2(to + 28, 0xAB, 4));
  EXPECT_EQ(read(to, 8),
            (std::vector<uint32_t>{9, 9, 0x01020304, 0x01020304, 9, 9, 9, 0xABABABAB}));
}

TEST_F(CudaStandin, RefusesToCopyBeyondAnAllocation) {
  const CUdeviceptr memory = words(4);
  uint32_t data[8] = {};
  EXPECT_EQ(cuMemcpyHtoD_v2(memory, data, 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH_v2(data, memory + 4, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32_v2(memory + 8, 0, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaStandin, PageableMemoryMayChangeAsSoonAsACopyFromItReturns) {
  const CUstream in = stream();
  const CUdeviceptr memory = words(1);
  Barrier barrier(*this, in);
  uint32_t value = 41;
  GS_OK(cuMemcpyHtoDAsync_v2(memory, &value, 4, in));
  value = 42;
  barrier.open();
  GS_OK(cuStreamSynchronize(in));
  EXPECT_EQ(read(memory, 1)[0], 41u);
}

TEST_F(CudaStandin, ContextsDoNotShareHandlesOfStreamsAndModules) {
  const CUstream mine = stream();
  CUcontext other = nullptr;
  GS_OK(cuCtxCreate_v2(&other, 0, 0));
  EXPECT_EQ(cuStreamSynchronize(mine), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy_v2(mine), CUDA_ERROR_INVALID_HANDLE);
  GS_OK(cuCtxDestroy_v2(other));
  GS_OK(cuStreamDestroy_v2(mine));
}

// --- kernels' effects, against the rounds done one by one ---------------------------------------

uint32_t after_rounds(uint32_t x, uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) x = 1664525 * x + 1013904223;
  return x;
}

TEST_F(CudaStandin, SpinAddsUpWhatEveryThreadComputes) {
  const uint32_t units = 37, seed = 99, blocks = 5, threads = 64;
  const CUdeviceptr out = words(1, 1000);
  GS_OK(launch(kernel("gs_spin"), blocks, threads, nullptr, out, seed, units, kRound.mul,
               kRound.add, 3u, 17u));
  uint32_t expected = 1000;
  for (uint32_t t = 0; t < blocks * threads; ++t)
    expected += 3 * after_rounds(seed + t * 0x9E3779B9, uint64_t{units} * 16) + 17;
  EXPECT_EQ(read(out, 1)[0], expected);
}

TEST_F(CudaStandin, TheInverseOfTheRoundsGivesTheStartValuesBack) {
  const kernels::Affine back = kRound.times(123456789ull * 16).inverse();
  EXPECT_EQ(back(kRound.times(123456789ull * 16)(4711)), 4711u);
  const CUdeviceptr out = words(1);
  GS_OK(launch(kernel("gs_spin"), 4, 32, nullptr, out, 5u, 77u, kRound.mul, kRound.add,
               kRound.times(77ull * 16).inverse().mul, kRound.times(77ull * 16).inverse().add));
  EXPECT_EQ(read(out, 1)[0], kernels::sum_of_starts(5, 0, 128));
}

TEST_F(CudaStandin, EndlessCountsItsTurnsUntilToldToStop) {
  const uint32_t units = 3, blocks = 2, threads = 32;
  void* memory = nullptr;
  GS_OK(cuMemHostAlloc(&memory, 24, CU_MEMHOSTALLOC_DEVICEMAP));
  auto* turns = static_cast<uint64_t*>(memory);
  CUdeviceptr device = 0;
  GS_OK(cuMemHostGetDevicePointer_v2(&device, memory, 0));
  const CUdeviceptr out = words(blocks);
  GS_OK(launch(kernel("gs_endless"), blocks, threads, nullptr, device, device + 16, out, 8u, units,
               kRound.mul, kRound.add));
  while (std::atomic_ref(turns[0]).load() < 100) std::this_thread::yield();
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  std::atomic_ref(turns[2]).store(1);
  GS_OK(cuCtxSynchronize());

  const auto sums = read(out, blocks);
  for (uint32_t block = 0; block < blocks; ++block) {
    uint32_t expected = 0;
    for (uint32_t t = block * threads; t < (block + 1) * threads; ++t)
      expected += after_rounds(8 + t * 0x9E3779B9, turns[block] * units * 16);
    EXPECT_EQ(sums[block], expected) << "block " << block << ", turns " << turns[block];
  }
}

TEST_F(CudaStandin, KernelsOverMemoryComputeTheirFormulas) {
  const uint32_t count = 1000, shift = 7;
  const CUdeviceptr a = words(count), b = words(count), sum = words(1);
  GS_OK(launch(kernel("gs_fill"), 8, 128, nullptr, a, count, 1u));
  GS_OK(launch(kernel("gs_fill"), 8, 128, nullptr, b, count, 2u));
  GS_OK(launch(kernel("gs_mix"), 8, 128, nullptr, a, b, count, shift));
  GS_OK(launch(kernel("gs_fold"), 8, 128, nullptr, a, count, sum));

  const auto filled = [](uint32_t seed, uint32_t i) {
    uint32_t x = seed + i * 0x9E3779B9;
    return (x ^ (x >> 16)) * 0x85EBCA6B;
  };
  uint32_t expected = 0;
  const auto mixed = read(a, count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t old = filled(1, i);
    uint32_t x = (old ^ filled(2, (i + shift) % count)) * 0xC2B2AE35;
    x = (x ^ (x >> 15)) + old;
    ASSERT_EQ(mixed[i], x) << i;
    expected += x * (2 * i + 1);
  }
  EXPECT_EQ(read(sum, 1)[0], expected);
}

TEST_F(CudaStandin, AKernelWithTooFewThreadsLeavesTheRest) {
  const CUdeviceptr a = words(100, 5);
  GS_OK(launch(kernel("gs_fill"), 2, 32, nullptr, a, 100u, 1u));
  const auto data = read(a, 100);
  EXPECT_EQ(std::ranges::count(data, 5u), 36);
}

TEST_F(CudaStandin, ArgumentsMayComeAsOneBuffer) {
  struct {
    CUdeviceptr buffer;
    uint32_t count, seed;
  } parameters{words(4), 4, 1};
  size_t bytes = sizeof parameters;
  void* extra[] = {reinterpret_cast<void*>(kCudaLaunchParamBufferPointer), &parameters,
                   reinterpret_cast<void*>(kCudaLaunchParamBufferSize), &bytes,
                   reinterpret_cast<void*>(kCudaLaunchParamEnd)};
  GS_OK(cuLaunchKernel(kernel("gs_fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(read(parameters.buffer, 4)[3], kernels::fill_value(1, 3));
  bytes = 12;  // one argument short
  EXPECT_EQ(cuLaunchKernel(kernel("gs_fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
}

// --- errors -------------------------------------------------------------------------------------

TEST_F(CudaStandin, UnknownKernelsAndWhatIsNoPtxAreRefused) {
  CUfunction function = nullptr;
  CUmodule other = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module_, "gs_nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleLoadData(&other, "not PTX"), CUDA_ERROR_INVALID_IMAGE);
  GS_OK(cuModuleLoadData(
      &other, ".version 7.0\n.target sm_70\n// .entry gs_empty()\n.entry mine() {ret;}"));
  EXPECT_EQ(cuModuleGetFunction(&function, other, "mine"), CUDA_ERROR_NOT_FOUND) << "no model";
  EXPECT_EQ(cuModuleGetFunction(&function, other, "gs_empty"), CUDA_ERROR_NOT_FOUND) << "comment";
  GS_OK(cuModuleUnload(other));
  EXPECT_EQ(cuModuleUnload(other), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CudaStandin, FunctionsGoWithTheirModule) {
  const CUfunction function = kernel("gs_empty");
  GS_OK(launch(function, 1, 1, nullptr));
  GS_OK(cuModuleUnload(module_));
  EXPECT_EQ(launch(function, 1, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CudaStandin, LibrariesGiveKernelsForAllContexts) {
  CUlibrary library = nullptr;
  CUkernel found = nullptr;
  CUfunction function = nullptr;
  GS_OK(cuLibraryLoadData(&library, workloads::kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  GS_OK(cuLibraryGetKernel(&found, library, "gs_empty"));
  GS_OK(cuKernelGetFunction(&function, found));
  GS_OK(launch(function, 1, 1, nullptr));
  GS_OK(cuLibraryUnload(library));
  EXPECT_EQ(launch(function, 1, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CudaStandin, RefusesImpossibleLaunches) {
  const CUfunction empty = kernel("gs_empty");
  EXPECT_EQ(launch(empty, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(empty, 1, 1025, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel("gs_fill"), 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE) << "no arguments";
  EXPECT_EQ(launch(nullptr, 1, 1, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(empty, 1, 1, reinterpret_cast<CUstream>(0x99)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CudaStandin, AnIllegalAddressSpoilsItsContextAndNoOther) {
  CUcontext spoilt = nullptr;
  GS_OK(cuCtxCreate_v2(&spoilt, 0, 0));
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  GS_OK(cuModuleLoadData(&module, workloads::kKernels));
  GS_OK(cuModuleGetFunction(&fill, module, "gs_fill"));
  GS_OK(launch(fill, 1, 32, nullptr, CUdeviceptr{0xDEAD0000}, 32u, 1u));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launch(fill, 1, 32, nullptr, CUdeviceptr{0}, 0u, 1u), CUDA_ERROR_ILLEGAL_ADDRESS);
  GS_OK(cuCtxPopCurrent_v2(nullptr));
  GS_OK(cuCtxSynchronize());
  EXPECT_EQ(cuCtxDestroy_v2(spoilt), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(CudaStandin, ErrorsHaveTheirNames) {
  const char* name = nullptr;
  GS_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  GS_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ(name, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &name), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(name, nullptr);
}

TEST_F(CudaStandin, FunctionsByNameAreThoseOfTheVersionAskedFor) {
  void *function = nullptr, *older = nullptr;
  CUdriverProcAddressQueryResult status{};
  GS_OK(cuGetProcAddress_v2("cuCtxCreate", &function, 13000, 0, &status));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuCtxCreate_v4));
  GS_OK(cuGetProcAddress_v2("cuCtxCreate", &older, 11000, 0, &status));
  EXPECT_EQ(older, reinterpret_cast<void*>(&cuCtxCreate_v2));
  GS_OK(cuGetProcAddress_v2("cuLibraryUnload", &function, 11000, 0, &status));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(function, nullptr);
  GS_OK(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress("cuNothing", &function, 13000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST_F(CudaStandin, AGpuIsSplitIntoPartsOfAsManyGroupsAsTheSmsTake) {
  struct Row {
    unsigned least, parts, sms;
  };
  CUdevResource whole{};
  GS_OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  for (const Row& row : {Row{1, 15, 8}, Row{8, 15, 8}, Row{9, 7, 16}, Row{64, 1, 64}}) {
    SCOPED_TRACE(row.least);
    unsigned count = 0;
    GS_OK(cuDevSmResourceSplitByCount(nullptr, &count, &whole, nullptr, 0, row.least));
    EXPECT_EQ(count, row.parts);
    std::vector<CUdevResource> parts(count);
    CUdevResource rest{};
    GS_OK(cuDevSmResourceSplitByCount(parts.data(), &count, &whole, &rest, 0, row.least));
    for (const CUdevResource& part : parts) EXPECT_EQ(part.sm.smCount, row.sms);
    EXPECT_EQ(rest.sm.smCount, whole.sm.smCount - row.parts * row.sms);
    CUdevResourceDesc description = nullptr;
    GS_OK(cuDevResourceGenerateDesc(&description, parts.data(), count));
    CUdevResource twice[] = {parts[0], parts[0]};
    EXPECT_EQ(cuDevResourceGenerateDesc(&description, twice, 2), CUDA_ERROR_INVALID_VALUE);
  }
  unsigned count = 0;
  EXPECT_EQ(cuDevSmResourceSplitByCount(nullptr, &count, &whole, nullptr, 0, 133),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushare
