// SPDX-License-Identifier: Apache-2.0
// Makes parts of a GPU for a workload. They last as long as the process. The thread of the
// GpuSession calls.
#pragma once

#include "tests/workloads/common/gpu_session.h"

namespace gpushare::workloads {

// The functions that make them: those of libcuda, or others of the same types.
struct GreenCalls {
  decltype(&::cuDeviceGetDevResource) get_resource = ::cuDeviceGetDevResource;
  decltype(&::cuDevSmResourceSplitByCount) split = ::cuDevSmResourceSplitByCount;
  decltype(&::cuDevResourceGenerateDesc) describe = ::cuDevResourceGenerateDesc;
  decltype(&::cuGreenCtxCreate) create = ::cuGreenCtxCreate;
  decltype(&::cuGreenCtxStreamCreate) create_stream = ::cuGreenCtxStreamCreate;
};

// Describes the first `sms` SMs, rounded up to the driver's unit of splitting.
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

// A part of the GPU: a green context's own context, and a stream in it.
struct GpuPart {
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  GpuPart(const GpuSession& session, unsigned sms) {
    const CUgreenCtx green = green_context(session, describe_sms(session, sms));
    check(cuCtxFromGreenCtx(&context, green), "cuCtxFromGreenCtx");
    stream = stream_in(green);
  }
};

// Makes `context` current while it lives.
class Current {
 public:
  explicit Current(CUcontext context) {
    check(cuCtxPushCurrent_v2(context), "cuCtxPushCurrent_v2");
  }
  ~Current() {
    CUcontext gone = nullptr;
    cuCtxPopCurrent_v2(&gone);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

}  // namespace gpushare::workloads
