// SPDX-License-Identifier: Apache-2.0
// How a wrapper puts the credit gate in front of a launch: where it runs, and what it starts. On
// the program's thread. Part of wrappers.cc.
#pragma once

#include "intercept/shim/credit/credits.h"
#include "intercept/shim/driver/table.h"

namespace gpushare::shim {

template <int index>
constexpr bool is_graph_launch = index == kHook_cuGraphLaunch || index == kHook_cuGraphLaunch_ptsz;

// Those features of the process for which a launch has more to do than to pass the gate.
[[gnu::always_inline]] inline uint32_t features_of_streams() {
  return this_process().features.load(std::memory_order_relaxed) & (kShimPartitions | kShimCredit);
}

constexpr CUstream named(CUstream stream, Flavor flavor) {
  if (stream != nullptr) return stream;
  return flavor == Flavor::kLegacy ? GS_CU_STREAM_LEGACY : GS_CU_STREAM_PER_THREAD;
}

// Makes the driver's call, a launch into `stream`, behind the credit gate. A launch into several
// streams at once does not wait on the GPU. Without `has_credit` it is the call alone, with nothing
// that would cost a launch its registers.
template <bool has_credit, int index, Flavor flavor, class Call>
[[gnu::always_inline]] inline CUresult credited(CUstream stream, CUfunction function,
                                                const Call& call) {
  if constexpr (has_credit && index != kHook_cuLaunchCooperativeKernelMultiDevice) {
    if (Credits* all = Credits::get()) {
      constexpr bool kIsGraph = is_graph_launch<index>;
      const Credits::Launch launch{.stream = named(stream, flavor),
                                   .function = function,
                                   .of = kIsGraph ? Lengths::kGraph : Lengths::kKernel};
      const bool is_sample = all->before_launch(slot(), launch);
      const CUresult result = call();
      if (is_sample) all->after_launch(launch);
      return result;
    }
  }
  return call();
}

// A call that waits for what is in line, or asks whether it has run: made before it, so that what
// another thread puts in line meanwhile does not count. The process may get another slot during the
// call, in which the number means nothing, so it is noted in this one.
class Seen {
 public:
  Seen()
      : all_(Credits::get()),
        slot_(&slot()),
        last_(slot_->credit.issued.load(std::memory_order_relaxed)) {}
  Seen(CUstream stream, Flavor flavor)
      : all_(Credits::get()),
        slot_(&slot()),
        last_(all_ == nullptr ? 0 : all_->last_in(*slot_, named(stream, flavor))) {}
  // After the call, of which this is the result.
  CUresult note(CUresult result) const {
    if (all_ != nullptr && result == CUDA_SUCCESS) all_->note_run(*slot_, last_);
    return result;
  }

 private:
  Credits* const all_;
  ShimSlot* const slot_;
  const uint32_t last_;
};

}  // namespace gpushare::shim
