// SPDX-License-Identifier: Apache-2.0
// Tests in the stand-in libcuda the waits of streams for words of memory, and their writes. A word
// that is not written yet makes every order certain; nothing sleeps.
#include <sys/mman.h>

#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

class CudaStandinValue : public CudaStandin {
 protected:
  void SetUp() override {
    CudaStandin::SetUp();
    // Another process could map it too, so it is memory that the program brings.
    page_ = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page_, MAP_FAILED);
    GS_OK(cuMemHostRegister_v2(page_, kPageBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    GS_OK(cuMemHostGetDevicePointer_v2(&on_gpu_, page_, 0));
  }
  void TearDown() override {
    GS_OK(cuMemHostUnregister(page_));
    ::munmap(page_, kPageBytes);
    CudaStandin::TearDown();
  }

  std::atomic_ref<uint32_t> word(size_t index = 0) const {
    return std::atomic_ref(static_cast<uint32_t*>(page_)[index]);
  }
  CUdeviceptr at(size_t index) const { return on_gpu_ + 4 * index; }
  // Whether a stream goes on that waits for `value` while the word is `now`.
  bool goes_on(uint32_t now, uint32_t value, unsigned flags) {
    const CUstream waiting = stream(CU_STREAM_NON_BLOCKING), aside = stream(CU_STREAM_NON_BLOCKING);
    word() = now;
    EXPECT_EQ(cuStreamWaitValue32_v2(waiting, on_gpu_, value, flags), CUDA_SUCCESS);
    // What is put in line later elsewhere has ended: the wait has come to its turn.
    EXPECT_EQ(cuStreamWriteValue32_v2(aside, at(1), 1, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(aside), CUDA_SUCCESS);
    const bool goes = cuStreamQuery(waiting) == CUDA_SUCCESS ||
                      (is_met(now, value, flags) && cuStreamSynchronize(waiting) == CUDA_SUCCESS);
    word() = flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : value;
    EXPECT_EQ(cuStreamSynchronize(waiting), CUDA_SUCCESS);
    return goes;
  }
  static bool is_met(uint32_t now, uint32_t value, unsigned flags) {
    if (flags == CU_STREAM_WAIT_VALUE_GEQ) return static_cast<int32_t>(now - value) >= 0;
    if (flags == CU_STREAM_WAIT_VALUE_EQ) return now == value;
    return flags == CU_STREAM_WAIT_VALUE_AND ? (now & value) != 0 : ~(now | value) != 0;
  }

  static constexpr size_t kPageBytes = 4096;
  void* page_ = nullptr;
  CUdeviceptr on_gpu_ = 0;
};

TEST_F(CudaStandinValue, GeqComparesInACircle) {
  EXPECT_TRUE(goes_on(5, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_TRUE(goes_on(6, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_FALSE(goes_on(4, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_TRUE(goes_on(3, 0xFFFFFFFE, CU_STREAM_WAIT_VALUE_GEQ)) << "it has come around";
  EXPECT_FALSE(goes_on(0xFFFFFFFE, 3, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_FALSE(goes_on(0x80000005, 5, CU_STREAM_WAIT_VALUE_GEQ)) << "as far behind as can be";
  EXPECT_TRUE(goes_on(0x80000004, 5, CU_STREAM_WAIT_VALUE_GEQ));
}

TEST_F(CudaStandinValue, TheOtherConditions) {
  EXPECT_TRUE(goes_on(5, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_FALSE(goes_on(6, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_TRUE(goes_on(6, 2, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_FALSE(goes_on(5, 2, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_TRUE(goes_on(5, 2, CU_STREAM_WAIT_VALUE_NOR));
  EXPECT_FALSE(goes_on(0xFFFFFFFD, 2, CU_STREAM_WAIT_VALUE_NOR));
}

TEST_F(CudaStandinValue, WhatIsBehindAWaitComesAfterIt) {
  const CUdeviceptr memory = words(1);
  GS_OK(cuCtxSynchronize());
  const CUstream held = stream(CU_STREAM_NON_BLOCKING), aside = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuStreamWaitValue32_v2(held, on_gpu_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  GS_OK(cuMemsetD32Async(memory, 1, 1, held));
  GS_OK(cuMemsetD32Async(memory, 2, 1, aside));
  GS_OK(cuStreamSynchronize(aside));
  EXPECT_EQ(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  word() = 1;
  GS_OK(cuStreamSynchronize(held));
  EXPECT_EQ(read(memory, 1)[0], 1u);
}

// What counts is the word when the stream comes to it, not when the wait was put in line.
TEST_F(CudaStandinValue, AWordMayGoBackBeforeItsTurn) {
  const CUstream held = stream(CU_STREAM_NON_BLOCKING), aside = stream(CU_STREAM_NON_BLOCKING);
  word() = 9;
  Barrier barrier(*this, held);
  GS_OK(cuStreamWaitValue32_v2(held, on_gpu_, 5, CU_STREAM_WAIT_VALUE_GEQ));
  GS_OK(cuStreamWriteValue32_v2(held, at(2), 7, 0));
  word() = 4;
  const CUevent passed = event();
  barrier.open();
  GS_OK(cuEventRecord(passed, aside));
  GS_OK(cuEventSynchronize(passed));
  EXPECT_EQ(word(2), 0u);
  EXPECT_EQ(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  word() = 5;
  GS_OK(cuStreamSynchronize(held));
  EXPECT_EQ(word(2), 7u);
}

// One stream waits for what another one writes, and the program makes no call meanwhile.
TEST_F(CudaStandinValue, AStreamWaitsForAnothersWrite) {
  const CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuStreamWaitValue64_v2(second, at(2), uint64_t{1} << 40, CU_STREAM_WAIT_VALUE_GEQ));
  GS_OK(cuStreamWriteValue32_v2(second, at(4), 1, 0));
  GS_OK(cuStreamWriteValue64_v2(first, at(2), (uint64_t{1} << 40) + 1, 0));
  while (word(4) == 0) std::this_thread::yield();
  GS_OK(cuCtxSynchronize());
}

TEST_F(CudaStandinValue, AHostFunctionThatWaitsKeepsNoStreamFromItsWord) {
  const CUstream hosts = stream(CU_STREAM_NON_BLOCKING), other = stream(CU_STREAM_NON_BLOCKING);
  std::atomic<bool> is_over{false};
  GS_OK(cuLaunchHostFunc(
      hosts,
      [](void* over) {
        while (!static_cast<std::atomic<bool>*>(over)->load()) std::this_thread::yield();
      },
      &is_over));
  GS_OK(cuStreamWaitValue32_v2(other, on_gpu_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
  word() = 1;
  GS_OK(cuStreamSynchronize(other));
  is_over = true;
  GS_OK(cuStreamSynchronize(hosts));
}

TEST_F(CudaStandinValue, TheLegacyStreamHoldsBlockingStreams) {
  const CUstream blocking = stream(), aside = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuStreamWaitValue32_v2(nullptr, on_gpu_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  GS_OK(cuStreamWriteValue32_v2(blocking, at(1), 1, 0));
  GS_OK(cuStreamWriteValue32_v2(aside, at(2), 1, 0));
  GS_OK(cuStreamSynchronize(aside));
  EXPECT_EQ(word(1), 0u);
  word() = 1;
  GS_OK(cuStreamSynchronize(blocking));
  EXPECT_EQ(word(1), 1u);
}

TEST_F(CudaStandinValue, ACaptureKeepsThemAsNodes) {
  const CUstream in = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuStreamBeginCapture_v2(in, CU_STREAM_CAPTURE_MODE_RELAXED));
  GS_OK(cuStreamWaitValue32_v2(in, on_gpu_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  GS_OK(cuStreamWriteValue32_v2(in, at(1), 3, 0));
  CUgraph graph = nullptr;
  GS_OK(cuStreamEndCapture(in, &graph));
  CUgraphNode nodes[2] = {};
  size_t count = 2;
  GS_OK(cuGraphGetNodes(graph, nodes, &count));
  ASSERT_EQ(count, 2u);
  CUgraphNodeType type{};
  GS_OK(cuGraphNodeGetType(nodes[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  CUgraphExec exec = nullptr;
  GS_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  GS_OK(cuGraphLaunch(exec, in));
  EXPECT_EQ(cuStreamQuery(in), CUDA_ERROR_NOT_READY);
  word() = 1;
  GS_OK(cuStreamSynchronize(in));
  EXPECT_EQ(word(1), 3u);
  GS_OK(cuGraphExecDestroy(exec));
  GS_OK(cuGraphDestroy(graph));
}

TEST_F(CudaStandinValue, RefusesWhatTheGpuDoesNotReach) {
  uint32_t own = 0;
  const auto pointer = reinterpret_cast<CUdeviceptr>(&own);
  EXPECT_EQ(cuStreamWaitValue32_v2(nullptr, pointer, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32_v2(nullptr, pointer, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32_v2(nullptr, on_gpu_ + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue64_v2(nullptr, on_gpu_ + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32_v2(nullptr, on_gpu_, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32_v2(nullptr, on_gpu_, 1, CU_STREAM_WAIT_VALUE_FLUSH),
            CUDA_ERROR_NOT_SUPPORTED);
  for (const unsigned flags : {1U, 2U})
    EXPECT_EQ(cuStreamWriteValue32_v2(nullptr, on_gpu_, 1, flags), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaStandinValue, MemoryIsRegisteredOnce) {
  auto* const bytes = static_cast<char*>(page_);
  EXPECT_EQ(cuMemHostRegister_v2(page_, kPageBytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostRegister_v2(bytes + 64, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(bytes + 64), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemFreeHost(page_), CUDA_ERROR_INVALID_VALUE) << "it is the program's";
  GS_OK(cuMemHostUnregister(page_));
  EXPECT_EQ(cuMemHostUnregister(page_), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  GS_OK(cuMemHostRegister_v2(page_, kPageBytes, CU_MEMHOSTREGISTER_PORTABLE));
}

TEST_F(CudaStandinValue, RegisteredMemoryOutlivesTheContext) {
  CUcontext other = nullptr;
  GS_OK(cuCtxCreate_v2(&other, 0, 0));
  void* const mine =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  GS_OK(cuMemHostRegister_v2(mine, kPageBytes, 0));
  GS_OK(cuCtxDestroy_v2(other));
  *static_cast<uint32_t*>(mine) = 1;  // it is still mapped
  GS_OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(cuMemHostUnregister(mine), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ::munmap(mine, kPageBytes);
}

}  // namespace
}  // namespace gpushare
