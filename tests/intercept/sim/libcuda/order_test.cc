// SPDX-License-Identifier: Apache-2.0
// Tests in the stand-in libcuda which work waits for which. Barriers (kernels that run until they
// are stopped) make every order certain; no test depends on speed.
#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

class CudaStandinOrder : public CudaStandin {
 protected:
  // Sets *memory to `value` when its turn has come.
  void put(CUstream in, CUdeviceptr memory, uint32_t value) {
    GS_OK(cuMemsetD32Async(memory, value, 1, in));
  }
  void expect_waits(CUstream waiting) { EXPECT_EQ(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY); }
};

TEST_F(CudaStandinOrder, WorkOfAStreamRunsInOrder) {
  const CUstream in = stream();
  const CUdeviceptr a = words(256), b = words(256), sum = words(1);
  uint32_t expected = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    GS_OK(launch(kernel("gs_fill"), 1, 256, in, a, 256u, round));
    GS_OK(cuMemcpyDtoDAsync_v2(b, a, 1024, in));
    GS_OK(launch(kernel("gs_fold"), 1, 256, in, b, 256u, sum));
    for (uint32_t i = 0; i < 256; ++i)
      expected += kernels::fold_value(kernels::fill_value(round, i), i);
  }
  GS_OK(cuStreamSynchronize(in));
  EXPECT_EQ(read(sum, 1)[0], expected);
}

TEST_F(CudaStandinOrder, StreamsDoNotWaitForEachOther) {
  const CUstream held = stream(), free = stream();
  Barrier barrier(*this, held);
  const CUdeviceptr memory = words(1);
  // words() filled on the legacy stream, behind the barrier: only its own stream shows this.
  const CUstream aside = stream(CU_STREAM_NON_BLOCKING);
  put(aside, memory, 7);
  GS_OK(cuStreamSynchronize(aside));
  expect_waits(held);
  barrier.open();
  GS_OK(cuStreamSynchronize(free));
  GS_OK(cuStreamSynchronize(held));
}

TEST_F(CudaStandinOrder, TheLegacyStreamWaitsForBlockingStreams) {
  const CUdeviceptr memory = words(1);
  GS_OK(cuCtxSynchronize());
  const CUstream blocking = stream(), aside = stream(CU_STREAM_NON_BLOCKING);
  Barrier barrier(*this, blocking);
  put(nullptr, memory, 1);
  put(aside, memory + 0, 2);
  GS_OK(cuStreamSynchronize(aside));
  expect_waits(nullptr);
  expect_waits(blocking);
  barrier.open();
  GS_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(read(memory, 1)[0], 1u);  // the legacy stream's came last
}

TEST_F(CudaStandinOrder, BlockingStreamsWaitForTheLegacyStream) {
  const CUdeviceptr memory = words(1);
  const CUstream blocking = stream(), aside = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuCtxSynchronize());
  Barrier barrier(*this, nullptr);
  put(blocking, memory, 1);
  put(aside, memory, 2);
  GS_OK(cuStreamSynchronize(aside));
  expect_waits(blocking);
  EXPECT_EQ(cuStreamQuery(aside), CUDA_SUCCESS);
  barrier.open();
  GS_OK(cuStreamSynchronize(blocking));
  EXPECT_EQ(read(memory, 1)[0], 1u);
}

TEST_F(CudaStandinOrder, TheThreadsOwnStreamIsOneOfTheBlockingStreams) {
  const CUdeviceptr memory = words(1);
  GS_OK(cuCtxSynchronize());
  Barrier barrier(*this, nullptr);
  put(GS_CU_STREAM_PER_THREAD, memory, 1);
  expect_waits(GS_CU_STREAM_PER_THREAD);
  std::thread([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(GS_CU_STREAM_PER_THREAD), CUDA_SUCCESS) << "another thread's";
  }).join();
  barrier.open();
  GS_OK(cuStreamSynchronize(GS_CU_STREAM_PER_THREAD));
}

TEST_F(CudaStandinOrder, AStreamWaitsForAnEventAsItWasRecorded) {
  const CUdeviceptr memory = words(1);
  const CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
  const CUevent passed = event();
  GS_OK(cuCtxSynchronize());
  GS_OK(cuStreamWaitEvent(second, passed, 0));  // never recorded: nothing to wait for
  GS_OK(cuStreamSynchronize(second));
  {
    Barrier barrier(*this, first);
    put(first, memory, 1);
    GS_OK(cuEventRecord(passed, first));
    GS_OK(cuStreamWaitEvent(second, passed, 0));
    put(second, memory, 2);
    expect_waits(second);
    EXPECT_EQ(cuEventQuery(passed), CUDA_ERROR_NOT_READY);
    barrier.open();
  }
  GS_OK(cuStreamSynchronize(second));
  GS_OK(cuEventQuery(passed));
  EXPECT_EQ(read(memory, 1)[0], 2u);
}

TEST_F(CudaStandinOrder, TheTimeBetweenEventsIsTheKernels) {
  const CUstream in = stream();
  const CUevent start = event(), end = event();
  const CUdeviceptr out = words(1);
  GS_OK(cuCtxSynchronize());
  GS_OK(cuEventRecord(start, in));
  // 10,000 units at 129.29 ns (the cost model's example), and 2 us that every kernel costs.
  GS_OK(launch(kernel("gs_spin"), 4 * 132, 256, in, out, 1u, 10'000u, kernels::kRound.mul,
               kernels::kRound.add, 1u, 0u));
  GS_OK(cuEventRecord(end, in));
  GS_OK(cuEventSynchronize(end));
  float ms = 0;
  GS_OK(cuEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 1.2949f);
  EXPECT_LT(ms, 100.0f);
}

TEST_F(CudaStandinOrder, EventsWithoutTimeOrRecordHaveNoTime) {
  const CUevent timeless = event(CU_EVENT_DISABLE_TIMING), fresh = event(), done = event();
  float ms = 0;
  GS_OK(cuEventRecord(timeless, nullptr));
  GS_OK(cuEventRecord(done, nullptr));
  GS_OK(cuCtxSynchronize());
  EXPECT_EQ(cuEventElapsedTime(&ms, timeless, done), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventElapsedTime(&ms, fresh, done), CUDA_ERROR_INVALID_HANDLE);
  GS_OK(cuEventElapsedTime(&ms, done, done));
  EXPECT_EQ(ms, 0.0f);
  GS_OK(cuEventDestroy_v2(done));
  EXPECT_EQ(cuEventSynchronize(done), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CudaStandinOrder, AHostFunctionRunsBetweenItsNeighbours) {
  struct Seen {
    uint32_t* value;
    uint32_t before = 0;
    std::atomic<bool> may_end{false};
  };
  void* pinned = nullptr;
  GS_OK(cuMemHostAlloc(&pinned, 8, 0));
  CUdeviceptr device = 0;
  GS_OK(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
  const CUstream in = stream(CU_STREAM_NON_BLOCKING);
  Seen seen{static_cast<uint32_t*>(pinned)};
  put(in, device, 5);
  GS_OK(cuLaunchHostFunc(
      in,
      [](void* data) {
        auto* to = static_cast<Seen*>(data);
        to->before = *to->value;
        while (!to->may_end.load()) std::this_thread::yield();
      },
      &seen));
  put(in, device, 6);
  expect_waits(in);
  seen.may_end = true;
  GS_OK(cuStreamSynchronize(in));
  EXPECT_EQ(seen.before, 5u);
  EXPECT_EQ(*seen.value, 6u);
}

TEST_F(CudaStandinOrder, WorkLeftInADestroyedStreamStillRunsAndIsWaitedFor) {
  const CUdeviceptr memory = words(1);
  GS_OK(cuCtxSynchronize());
  const CUstream gone = stream();
  Barrier barrier(*this, gone);
  put(gone, memory, 3);
  GS_OK(cuStreamDestroy_v2(gone));
  EXPECT_EQ(cuStreamSynchronize(gone), CUDA_ERROR_INVALID_HANDLE);
  const CUstream next = stream(CU_STREAM_NON_BLOCKING);
  GS_OK(cuStreamSynchronize(next));  // not in line behind what is left of the other
  expect_waits(nullptr);
  barrier.open();
  EXPECT_EQ(read(memory, 1)[0], 3u);
}

TEST_F(CudaStandinOrder, ThreadsMaySubmitAndWaitAtOnce) {
  constexpr uint32_t kThreads = 8, kKernels = 50;
  const CUdeviceptr out = words(kThreads);
  const CUfunction spin = kernel("gs_spin");
  GS_OK(cuCtxSynchronize());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
      const CUstream in = stream(i % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
      for (uint32_t k = 0; k < kKernels; ++k) {
        EXPECT_EQ(launch(spin, 1, 32, in, out + 4ull * i, k, 0u, kernels::kRound.mul,
                         kernels::kRound.add, 1u, 0u),
                  CUDA_SUCCESS);
        if (k % 10 == 9) {
          EXPECT_EQ(cuStreamSynchronize(in), CUDA_SUCCESS);
        }
      }
      EXPECT_EQ(cuStreamSynchronize(in), CUDA_SUCCESS);
    });
  }
  for (auto& thread : threads) thread.join();
  uint32_t expected = 0;
  for (uint32_t k = 0; k < kKernels; ++k) expected += kernels::sum_of_starts(k, 0, 32);
  EXPECT_EQ(read(out, kThreads), std::vector<uint32_t>(kThreads, expected));
}

}  // namespace
}  // namespace gpushare
