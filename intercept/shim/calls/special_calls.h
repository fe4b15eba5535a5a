// SPDX-License-Identifier: Apache-2.0
// Wrappers of functions that do more than to put work into a stream: they create, change or destroy
// streams or contexts, or hand a stream to the program's own function. On the program's thread.
// Part of wrappers.cc.
#pragma once

#include <cstdlib>
#include <type_traits>

#include "intercept/shim/calls/capture_calls.h"
#include "intercept/shim/calls/graph_calls.h"
#include "intercept/shim/calls/shown_calls.h"
#include "intercept/shim/credit/credits.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/done.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {

// A child of fork() begins without a slot, and is to be known before its first context and stream.

// cuStreamCreate, cuStreamCreateWithPriority.
template <int index, class Signature>
struct Created;
template <int index, class... Rest>
struct Created<index, CUresult(CUstream*, Rest...)> {
  static CUresult call(CUstream* stream, Rest... rest) {
    attach();
    const CUresult result = real<CUresult (*)(CUstream*, Rest...)>(index)(stream, rest...);
    if (result == CUDA_SUCCESS)
      if (Streams* all = Streams::get()) all->on_created(*stream);
    return result;
  }
};

template <int index, class Signature>
struct Destroyed {
  static CUresult call(CUstream stream) {
    if (Streams* all = Streams::get()) {
      if (Stream* known = all->find(stream, Flavor::kLegacy))
        if (Graphs* graphs = Graphs::get()) graphs->forget_stream(*known);
      all->before_destroy(stream);
    }
    return real<CUresult (*)(CUstream)>(index)(stream);
  }
};

template <class Apply>
void for_each_stand_in(CUstream stream, Flavor flavor, const Apply& apply) {
  Streams* all = Streams::get();
  Stream* known = all == nullptr ? nullptr : all->find(stream, flavor);
  if (known == nullptr) return;
  const Inside inside;
  const Look look(*known);  // it does not end meanwhile, nor, with the lock, any of its stand-ins
  if (look.kind() == Stream::Kind::kNone) return;
  const Locked locked(known->device->lock);
  for (int i = 1; i <= Partitions::kMost; ++i)
    if (CUstream there = known->at[i].load(std::memory_order_acquire)) apply(there);
}

// Sets the attribute of the stream's home, whose result the program gets, and of all stand-ins.
template <int index, class Signature>
struct Attribute {
  static CUresult call(CUstream stream, unsigned attribute, const void* value) {
    const auto set = real<CUresult (*)(CUstream, unsigned, const void*)>(index);
    const CUresult result = set(stream, attribute, value);
    if (result == CUDA_SUCCESS)
      for_each_stand_in(stream, flavor_of(index),
                        [&](CUstream there) { set(there, attribute, value); });
    return result;
  }
};

template <int index, class Signature>
struct Attributes {
  static CUresult call(CUstream to, CUstream from) {
    const auto copy = real<CUresult (*)(CUstream, CUstream)>(index);
    const CUresult result = copy(to, from);
    if (result == CUDA_SUCCESS)
      for_each_stand_in(to, flavor_of(index), [&](CUstream there) { copy(there, to); });
    return result;
  }
};

// cuStreamAddCallback: the program's function gets the stream that the program knows.
template <int index, class Signature>
struct Callback {
  using Function = void (*)(CUstream, CUresult, void*);
  struct Told {
    Function function;
    CUstream stream;
    void* data;
  };

  static void tell(CUstream, CUresult result, void* data) {
    const Told told = *static_cast<Told*>(data);
    std::free(data);
    told.function(told.stream, result, told.data);
  }

  static CUresult call(CUstream stream, void* function, void* data, unsigned flags) {
    const auto add = real<CUresult (*)(CUstream, void*, void*, unsigned)>(index);
    StreamUse use(stream, flavor_of(index), Use::kOperation);
    if (!use.is_away() || function == nullptr) return add(use.physical(), function, data, flags);
    const KeepErrno errno_of_the_program;
    auto* told = static_cast<Told*>(std::malloc(sizeof(Told)));
    if (told == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *told = {reinterpret_cast<Function>(function), stream, data};
    const CUresult result =
        add(use.physical(), reinterpret_cast<void*>(&Callback::tell), told, flags);
    if (result != CUDA_SUCCESS) std::free(told);
    return result;
  }
};

// While it lives, no other thread takes the primary context of the device or gives it up, where
// partitions are made in it: if the last one but this gave it up between the driver's call and our
// count, or this between our count and the driver's call, all streams of a context would be
// forgotten that lives on.
class PrimaryHeld {
 public:
  explicit PrimaryHeld(CUdevice device) {
    if (device < 0 || device >= static_cast<CUdevice>(kShimGpus) || Streams::get() == nullptr)
      return;
    ThreadLock& lock = this_process().primaries[device];
    if (lock.lock()) held_ = &lock;
  }
  ~PrimaryHeld() {
    if (held_ != nullptr) held_->unlock();
  }
  PrimaryHeld(const PrimaryHeld&) = delete;
  PrimaryHeld& operator=(const PrimaryHeld&) = delete;

 private:
  ThreadLock* held_ = nullptr;  // nullptr: nothing is to be let go
};

template <int index, class Signature>
struct Retained {
  static CUresult call(CUcontext* context, CUdevice device) {
    attach();
    const PrimaryHeld held(device);
    context_begins();  // before another thread gives up what seems to be the last
    const CUresult result = real<CUresult (*)(CUcontext*, CUdevice)>(index)(context, device);
    if (result != CUDA_SUCCESS) {
      context_ends();
      return result;
    }
    if (Streams* all = Streams::get()) all->on_retained(device, *context);
    if (Credits* all = Credits::get()) all->on_retained(device, *context);
    return result;
  }
};

template <int index, class Signature>
struct Released {
  static CUresult call(CUdevice device) {
    constexpr bool kIsReset =
        index == kHook_cuDevicePrimaryCtxReset || index == kHook_cuDevicePrimaryCtxReset_v2;
    const PrimaryHeld held(device);
    if constexpr (kIsReset) say_done();
    const bool is_counted = !kIsReset && context_ends();
    if (Streams* all = Streams::get()) all->before_release(device, kIsReset);
    const CUresult result = real<CUresult (*)(CUdevice)>(index)(device);
    if (result != CUDA_SUCCESS && is_counted) context_begins();  // it is still there
    if (Credits* all = Credits::get()) all->after_release(device);
    return result;
  }
};

// A context beside the primary one begins, or ends.
template <int index, class Signature>
struct OtherContext;
template <int index, class... Parameters>
struct OtherContext<index, CUresult(Parameters...)> {
  static CUresult call(Parameters... arguments) {
    attach();
    Streams* all = Streams::get();
    if (all != nullptr) all->count_other_contexts(1);
    constexpr bool kIsCounted = index != kHook_cuGreenCtxCreate;
    if constexpr (kIsCounted) context_begins();
    const CUresult result = real<CUresult (*)(Parameters...)>(index)(arguments...);
    if (result == CUDA_SUCCESS) return result;
    if (all != nullptr) all->count_other_contexts(-1);
    if constexpr (kIsCounted) context_ends();
    return result;
  }
};
template <int index, class Signature>
struct OtherContextGone;
template <int index, class Context>
struct OtherContextGone<index, CUresult(Context)> {
  static CUresult call(Context context) {
    bool is_counted = false;
    if constexpr (std::is_same_v<Context, CUcontext>) is_counted = context_ends();
    const CUresult result = real<CUresult (*)(Context)>(index)(context);
    if (result != CUDA_SUCCESS && is_counted) context_begins();  // it is still there
    if (result != CUDA_SUCCESS) return result;
    if (Streams* all = Streams::get()) all->count_other_contexts(-1);
    if constexpr (std::is_same_v<Context, CUcontext>)
      if (Credits* all = Credits::get()) all->context_ended(context);
    return result;
  }
};

template <int index>
constexpr bool has_special = false;
template <int index, class Signature>
struct Special;

// NOLINTBEGIN(bugprone-macro-parentheses): the base of a class takes none
#define GS_SPECIAL(wrapper, symbol)                         \
  template <>                                               \
  inline constexpr bool has_special<kHook_##symbol> = true; \
  template <class Signature>                                \
  struct Special<kHook_##symbol, Signature> : wrapper<kHook_##symbol, Signature> {};
// NOLINTEND(bugprone-macro-parentheses)
GS_SPECIAL(Created, cuStreamCreate)
GS_SPECIAL(Created, cuStreamCreateWithPriority)
GS_SPECIAL(Destroyed, cuStreamDestroy)
GS_SPECIAL(Destroyed, cuStreamDestroy_v2)
GS_SPECIAL(Attribute, cuStreamSetAttribute)
GS_SPECIAL(Attribute, cuStreamSetAttribute_ptsz)
GS_SPECIAL(Attributes, cuStreamCopyAttributes)
GS_SPECIAL(Attributes, cuStreamCopyAttributes_ptsz)
GS_SPECIAL(CaptureBegun, cuStreamBeginCapture)
GS_SPECIAL(CaptureBegun, cuStreamBeginCapture_ptsz)
GS_SPECIAL(CaptureBegun, cuStreamBeginCapture_v2)
GS_SPECIAL(CaptureBegun, cuStreamBeginCapture_v2_ptsz)
GS_SPECIAL(CaptureBegun, cuStreamBeginCaptureToGraph)
GS_SPECIAL(CaptureBegun, cuStreamBeginCaptureToGraph_ptsz)
GS_SPECIAL(CaptureBegun, cuStreamBeginRecaptureToGraph)
GS_SPECIAL(CaptureBegun, cuStreamBeginRecaptureToGraph_ptsz)
GS_SPECIAL(CaptureEnded, cuStreamEndCapture)
GS_SPECIAL(CaptureEnded, cuStreamEndCapture_ptsz)
GS_SPECIAL(Callback, cuStreamAddCallback)
GS_SPECIAL(Callback, cuStreamAddCallback_ptsz)
GS_SPECIAL(Retained, cuDevicePrimaryCtxRetain)
GS_SPECIAL(Released, cuDevicePrimaryCtxRelease)
GS_SPECIAL(Released, cuDevicePrimaryCtxRelease_v2)
GS_SPECIAL(Released, cuDevicePrimaryCtxReset)
GS_SPECIAL(Released, cuDevicePrimaryCtxReset_v2)
GS_SPECIAL(OtherContext, cuCtxCreate)
GS_SPECIAL(OtherContext, cuCtxCreate_v2)
GS_SPECIAL(OtherContext, cuCtxCreate_v3)
GS_SPECIAL(OtherContext, cuCtxCreate_v4)
GS_SPECIAL(OtherContext, cuGreenCtxCreate)
GS_SPECIAL(OtherContextGone, cuCtxDestroy)
GS_SPECIAL(OtherContextGone, cuCtxDestroy_v2)
GS_SPECIAL(OtherContextGone, cuGreenCtxDestroy)
GS_SPECIAL(GraphNode, cuGraphAddKernelNode)
GS_SPECIAL(GraphNode, cuGraphAddKernelNode_v2)
GS_SPECIAL(GraphNode, cuGraphAddChildGraphNode)
GS_SPECIAL(GraphNode, cuGraphAddNode)
GS_SPECIAL(GraphNode, cuGraphAddNode_v2)
GS_SPECIAL(GraphNode, cuGraphAddNode_v3)
GS_SPECIAL(Condition, cuGraphConditionalHandleCreate)
GS_SPECIAL(Instantiated, cuGraphInstantiate)
GS_SPECIAL(Instantiated, cuGraphInstantiate_v2)
GS_SPECIAL(Instantiated, cuGraphInstantiateWithFlags)
GS_SPECIAL(Instantiated, cuGraphInstantiateWithParams)
GS_SPECIAL(Instantiated, cuGraphInstantiateWithParams_ptsz)
GS_SPECIAL(ExecDestroyed, cuGraphExecDestroy)
GS_SPECIAL(ObjectRetained, cuGraphRetainUserObject)
GS_SPECIAL(ExecUpdated, cuGraphExecUpdate)
GS_SPECIAL(ExecUpdated, cuGraphExecUpdate_v2)
GS_SPECIAL(ExecNodeSet, cuGraphExecKernelNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecKernelNodeSetParams_v2)
GS_SPECIAL(ExecNodeSet, cuGraphExecMemcpyNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecMemsetNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecHostNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecChildGraphNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecEventRecordNodeSetEvent)
GS_SPECIAL(ExecNodeSet, cuGraphExecEventWaitNodeSetEvent)
GS_SPECIAL(ExecNodeSet, cuGraphExecExternalSemaphoresSignalNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecExternalSemaphoresWaitNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphNodeSetEnabled)
GS_SPECIAL(ExecNodeSet, cuGraphExecBatchMemOpNodeSetParams)
GS_SPECIAL(ExecNodeSet, cuGraphExecNodeSetParams)
GS_SPECIAL(NodeSet, cuGraphKernelNodeSetParams)
GS_SPECIAL(NodeSet, cuGraphKernelNodeSetParams_v2)
GS_SPECIAL(NodeSet, cuGraphNodeSetParams)
GS_SPECIAL(ShownAttribute, cuDeviceGetAttribute)
GS_SPECIAL(ShownPart, cuOccupancyMaxPotentialBlockSize)
GS_SPECIAL(ShownPart, cuOccupancyMaxPotentialBlockSizeWithFlags)
GS_SPECIAL(ShownPart, cuOccupancyMaxActiveClusters)
#undef GS_SPECIAL

}  // namespace gpushare::shim
