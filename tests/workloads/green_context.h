// SPDX-License-Identifier: Apache-2.0
// Parts of a GPU that a workload makes for itself. They last as long as the process.
#pragma once

#include "tests/workloads/gpu_session.h"

namespace gpushare::workloads {

// The first so many SMs, rounded up to what the driver splits by.
inline CUdevResourceDesc describe_sms(const GpuSession& session, unsigned sms) {
  CUdevResource all{}, part{}, rest{};
  unsigned parts = 1;
  CUdevResourceDesc description = nullptr;
  check(cuDeviceGetDevResource(session.device(), &all, CU_DEV_RESOURCE_TYPE_SM),
        "cuDeviceGetDevResource");
  check(cuDevSmResourceSplitByCount(&part, &parts, &all, &rest, 0, sms),
        "cuDevSmResourceSplitByCount");
  check(cuDevResourceGenerateDesc(&description, &part, 1), "cuDevResourceGenerateDesc");
  return description;
}

inline CUgreenCtx green_context(const GpuSession& session, CUdevResourceDesc description) {
  CUgreenCtx made = nullptr;
  check(cuGreenCtxCreate(&made, description, session.device(), CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate");
  return made;
}

inline CUstream stream_in(CUgreenCtx green) {
  CUstream made = nullptr;
  check(cuGreenCtxStreamCreate(&made, green, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
  return made;
}

}  // namespace gpushare::workloads
