// SPDX-License-Identifier: Apache-2.0
// Tests those properties of graphs in the stand-in libcuda that only a simulated GPU shows.
// tests/conformance has the properties that a program may rely on.
#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

using CudaStandinGraph = CudaStandin;

TEST_F(CudaStandinGraph, ACapturedKernelKeepsItsPartOfTheGpu) {
  CUcontext primary = nullptr;
  GS_OK(cuDevicePrimaryCtxRetain(&primary, 0));
  GS_OK(cuCtxPushCurrent_v2(primary));
  GS_OK(cuModuleLoadData(&module_, workloads::kKernels));
  CUgreenCtx green = nullptr;
  CUstream there = nullptr;
  make_part(&green);
  GS_OK(cuGreenCtxStreamCreate(&there, green, CU_STREAM_NON_BLOCKING, 0));

  const CUdeviceptr sms = words(8);
  GS_OK(cuStreamBeginCapture_v2(there, CU_STREAM_CAPTURE_MODE_RELAXED));
  GS_OK(launch(kernel("gs_sms"), 1000, 32, there, sms, 1u));
  CUgraph graph = nullptr;
  GS_OK(cuStreamEndCapture(there, &graph));
  CUgraphExec exec = nullptr;
  GS_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  GS_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(read(sms, 8), (std::vector<uint32_t>{0xFF, 0, 0, 0, 0, 0, 0, 0}));

  GS_OK(cuGraphExecDestroy(exec));
  GS_OK(cuGraphDestroy(graph));
  GS_OK(cuStreamDestroy_v2(there));
  GS_OK(cuGreenCtxDestroy(green));
  GS_OK(cuCtxPopCurrent_v2(&primary));
  GS_OK(cuDevicePrimaryCtxRelease_v2(0));
}

}  // namespace
}  // namespace gpushare
