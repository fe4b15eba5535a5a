// SPDX-License-Identifier: Apache-2.0
// Parts of a GPU that a workload makes for itself. They last as long as the process.
#pragma once

#include "tests/workloads/common/gpu_session.h"

namespace gpushare::workloads {

// What they are made with: the functions that any program calls, or others of the same names.
struct GreenCalls {
  decltype(&::cuDeviceGetDevResource) get_resource = ::cuDeviceGetDevResource;
  decltype(&::cuDevSmResourceSplitByCount) split = ::cuDevSmResourceSplitByCount;
  decltype(&::cuDevResourceGenerateDesc) describe = ::cuDevResourceGenerateDesc;
  decltype(&::cuGreenCtxCreate) create = ::cuGreenCtxCreate;
  decltype(&::cuGreenCtxStreamCreate) create_stream = ::cuGreenCtxStreamCreate;
};

// The first so many SMs, rounded up to what the driver splits by.
inline CUdevResourceDesc describe_sms(const GpuSession& session, unsigned sms,
                                      const GreenCalls& calls = {}) {
  CUdevResource all{}, part{}, rest{};
  unsigned parts = 1;
  CUdevResourceDesc description = nullptr;
  check(calls.get_resource(session.device(), &all, CU_DEV_RESOURCE_TYPE_SM),
        "cuDeviceGetDevResource");
  check(calls.split(&part, &parts, &all, &rest, 0, sms), "cuDevSmResourceSplitByCount");
  check(calls.describe(&description, &part, 1), "cuDevResourceGenerateDesc");
  return description;
}

inline CUgreenCtx green_context(const GpuSession& session, CUdevResourceDesc description,
                                const GreenCalls& calls = {}) {
  CUgreenCtx made = nullptr;
  check(calls.create(&made, description, session.device(), CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate");
  return made;
}

inline CUstream stream_in(CUgreenCtx green, const GreenCalls& calls = {}) {
  CUstream made = nullptr;
  check(calls.create_stream(&made, green, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
  return made;
}

}  // namespace gpushare::workloads
