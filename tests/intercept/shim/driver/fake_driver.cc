// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 with no GPU behind it, for the tests of how programs reach the shim: it has each
// function of hooks.def, which returns a number that says which one it is. cuGetProcAddress gives
// other addresses of the same functions than dlsym does, as a driver may.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/intercept/shim/driver/fake_driver.h"

using gpushare::shim::Flavor;
using gpushare::test::answer_of;

namespace {

struct EntryPoint {
  const char* base;
  int since;
  Flavor flavor;
  void* address;
};

template <int index, class Signature>
struct Thunk;
template <int index, class... Parameters>
struct Thunk<index, CUresult(Parameters...)> {
  static CUresult call(Parameters...) { return answer_of(index); }
};

// A version of cuLaunchKernel that hooks.def does not know, with other parameters.
CUresult launch_of_the_future(double, double) { return gpushare::test::kFutureAnswer; }

}  // namespace

namespace {
std::string pipe_at_init = "cuInit was not called";
CUresult note_init(CUresult answer) {
  const char* pipe = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  pipe_at_init = pipe == nullptr ? "none" : pipe;
  return answer;
}

std::atomic<int> context_answer{-1};
std::atomic<bool> blocks{false};
std::atomic<void (*)()> in_contexts{nullptr};
CUresult of_context(CUresult answer) {
  if (void (*const call)() = in_contexts) call();
  return context_answer < 0 ? answer : static_cast<CUresult>(context_answer.load());
}
CUresult of_finish(CUresult answer) {
  while (blocks) ::pause();
  return answer;
}
}  // namespace

extern "C" {
#pragma GCC visibility push(default)
const char* gs_pipe_at_init() { return pipe_at_init.c_str(); }
// What the functions for contexts answer from now on; negative: as at the start.
void gs_answer_contexts(int answer) { context_answer = answer; }
// What runs in each of those from now on.
void gs_in_contexts(void (*call)()) { in_contexts = call; }
// From now on calls that wait for all work do not come back; a thread may be cancelled in them.
void gs_block() { blocks = true; }

// What is made of an entry, by its kind: all kinds but two are ordinary.
#define GS_KIND_Launch GS_ORDINARY
#define GS_KIND_Copy GS_ORDINARY
#define GS_KIND_OnGpu GS_ORDINARY
#define GS_KIND_Wait GS_ORDINARY
#define GS_KIND_Event GS_ORDINARY
#define GS_KIND_Order GS_ORDINARY
#define GS_KIND_Capture GS_ORDINARY
#define GS_KIND_Captured GS_ORDINARY
#define GS_KIND_Finish GS_FINISH
#define GS_KIND_Release GS_ORDINARY
#define GS_KIND_Shown GS_ORDINARY
#define GS_KIND_Stream GS_ORDINARY
#define GS_KIND_Graph GS_ORDINARY
#define GS_KIND_Context GS_CONTEXT
#define GS_KIND_Lookup GS_LOOKUP
#define GS_KIND_Init GS_INIT

#define GS_ORDINARY(base, symbol, since, parameters, flavor) \
  CUresult symbol parameters { return answer_of(gpushare::shim::kHook_##symbol); }
#define GS_FINISH(base, symbol, since, parameters, flavor) \
  CUresult symbol parameters { return of_finish(answer_of(gpushare::shim::kHook_##symbol)); }
#define GS_CONTEXT(base, symbol, since, parameters, flavor) \
  CUresult symbol parameters { return of_context(answer_of(gpushare::shim::kHook_##symbol)); }
#define GS_LOOKUP(base, symbol, since, parameters, flavor)
#define GS_INIT(base, symbol, since, parameters, flavor) \
  CUresult symbol parameters { return note_init(answer_of(gpushare::shim::kHook_##symbol)); }
#define GS_HOOK(kind, base, symbol, since, parameters) \
  GS_KIND_##kind(base, symbol, since, parameters, Flavor::kLegacy)
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
#undef GS_ORDINARY
#undef GS_FINISH
#undef GS_CONTEXT
#undef GS_LOOKUP
#undef GS_INIT

// Functions that the shim needs of a driver with green contexts. There is no context, so none of
// them is used.
#define GS_UNUSED(name, parameters) \
  CUresult name parameters { return CUDA_ERROR_INVALID_CONTEXT; }
GS_UNUSED(cuDeviceGetDevResource, (CUdevice, CUdevResource*, CUdevResourceType))
GS_UNUSED(cuDevSmResourceSplitByCount,
          (CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned, unsigned))
GS_UNUSED(cuDevResourceGenerateDesc, (CUdevResourceDesc*, CUdevResource*, unsigned))
GS_UNUSED(cuCtxFromGreenCtx, (CUcontext*, CUgreenCtx))
GS_UNUSED(cuGreenCtxStreamCreate, (CUstream*, CUgreenCtx, unsigned, int))
GS_UNUSED(cuCtxGetCurrent, (CUcontext*))
GS_UNUSED(cuCtxGetDevice, (CUdevice*))
GS_UNUSED(cuCtxGetFlags, (unsigned*))
GS_UNUSED(cuCtxPushCurrent_v2, (CUcontext))
GS_UNUSED(cuCtxPopCurrent_v2, (CUcontext*))
GS_UNUSED(cuDeviceGetPCIBusId, (char*, int, CUdevice))
GS_UNUSED(cuEventCreate, (CUevent*, unsigned))
GS_UNUSED(cuEventDestroy_v2, (CUevent))
GS_UNUSED(cuStreamGetFlags, (CUstream, unsigned*))
GS_UNUSED(cuStreamGetPriority, (CUstream, int*))
GS_UNUSED(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))
GS_UNUSED(cuDriverGetVersion, (int*))
GS_UNUSED(cuGraphDestroy, (CUgraph))

CUresult cuGetProcAddress_v2(const char* base, void** function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status);
CUresult cuGetProcAddress(const char* base, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(base, function, version, flags, nullptr);
}
#pragma GCC visibility pop
}

namespace {

#define GS_ORDINARY(base, symbol, since, parameters, flavor) \
  {#base, since, flavor,                                     \
   reinterpret_cast<void*>(&Thunk<gpushare::shim::kHook_##symbol, CUresult parameters>::call)},
#define GS_FINISH GS_ORDINARY
#define GS_CONTEXT GS_ORDINARY
#define GS_LOOKUP(base, symbol, since, parameters, flavor) \
  {#base, since, flavor, reinterpret_cast<void*>(&symbol)},
#define GS_INIT GS_LOOKUP
#define GS_HOOK(kind, base, symbol, since, parameters) \
  GS_KIND_##kind(base, symbol, since, parameters, Flavor::kLegacy)
#define GS_HOOK_VARIANT(kind, base, symbol, since, parameters) \
  GS_KIND_##kind(base, symbol, since, parameters, Flavor::kPerThread)
const EntryPoint kEntryPoints[] = {
#include "intercept/shim/driver/hooks.def"
    {"cuLaunchKernel", gpushare::test::kFuture, Flavor::kLegacy,
     reinterpret_cast<void*>(&launch_of_the_future)},
};

}  // namespace

CUresult cuGetProcAddress_v2(const char* base, void** function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const EntryPoint* best = nullptr;
  bool is_known = false;
  for (const EntryPoint& each : kEntryPoints) {
    if (std::strcmp(each.base, base) != 0) continue;
    is_known = true;
    const bool is_variant = each.flavor == Flavor::kPerThread;
    if (each.since > version ||
        (is_variant && flags != CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
      continue;
    if (best == nullptr || each.since > best->since || is_variant) best = &each;
  }
  *function = best == nullptr ? nullptr : best->address;
  if (status != nullptr)
    *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : is_known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return best != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
