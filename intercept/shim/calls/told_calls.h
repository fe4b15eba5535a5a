// SPDX-License-Identifier: Apache-2.0
// What a call says about iterations: which function is launched, which way data is copied, and when
// the program has waited. This follows from the function's name and its parameters, so that
// hooks.def stays the only table. On the program's thread. Part of wrappers.cc.
#pragma once

#include <string_view>
#include <type_traits>

#include "intercept/shim/driver/table.h"
#include "intercept/shim/iterations/copies.h"
#include "intercept/shim/iterations/progress.h"

namespace gpushare::shim {

constexpr std::string_view symbol_of(int index) {
  constexpr std::string_view kSymbols[] = {
#define GS_HOOK(kind, base, symbol, since, parameters) #symbol,
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  };
  return kSymbols[index];
}

template <int index>
constexpr bool is_called(std::string_view part) {
  return symbol_of(index).find(part) != std::string_view::npos;
}

// --- launches -----------------------------------------------------------------------------------

inline uint32_t blocks_of(uint64_t x, uint64_t y, uint64_t z) {
  const uint64_t blocks = x * y * z;
  return blocks < ~0u ? static_cast<uint32_t>(blocks) : ~0u;
}
template <class Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

inline void tell_launch(Progress& all, uint64_t stream, CUfunction function, unsigned x, unsigned y,
                        unsigned z) {
  all.launched(number(function), blocks_of(x, y, z), stream);
}
inline void tell_launch(Progress& all, uint64_t stream, const CUlaunchConfig* config,
                        CUfunction function, void**, void**) {
  all.launched(number(function), blocks_of(config->gridDimX, config->gridDimY, config->gridDimZ),
               stream);
}
inline void tell_launch(Progress& all, uint64_t stream, CUfunction function) {
  all.launched(number(function), 1, stream);
}
template <class... Stream>
void tell_launch(Progress& all, uint64_t stream, CUfunction function, int x, int y, Stream...) {
  all.launched(number(function), blocks_of(static_cast<unsigned>(x), static_cast<unsigned>(y), 1),
               stream);
}
inline void tell_launch(Progress& all, uint64_t stream, CUgraphExec graph, CUstream) {
  all.launched_graph(number(graph), stream);
}
// cuLaunchCooperativeKernelMultiDevice launches into several streams at once and is not told.
inline void tell_launch(Progress&, uint64_t, void*, unsigned, unsigned) {}

// --- copies -------------------------------------------------------------------------------------

// The driver returns from a copy of up to so much pageable memory before the copy is done.
constexpr uint64_t kStagedBytes = 64 << 10;

template <class... Parameters>
uint64_t last_size(const Parameters&... parameters) {
  uint64_t last = 0;
  const auto look = [&last]<class T>(const T& value) {
    if constexpr (std::is_same_v<T, size_t>) last = value;
  };
  (look(parameters), ...);
  return last;
}

template <class... Rest>
CopyTold unified_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Rest&...) {
  return copy_between(to, from, bytes);
}
template <class... Rest>
CopyTold described_copy(bool is_3d, const void* description, const Rest&...) {
  return shaped_copy(description, is_3d);
}
template <class... Rest>
CopyTold batch(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes, size_t count,
               const Rest&...) {
  if (count == 0 || to == nullptr || from == nullptr || bytes == nullptr)
    return {CopyWay::kOnGpu, 0};
  CopyTold told = copy_between(to[0], from[0], 0);
  for (size_t i = 0; i < count; ++i) told.bytes += bytes[i];
  return told;
}

template <int index, class... Parameters>
CopyTold copy_told(const Parameters&... parameters) {
  if constexpr (is_called<index>("Peer") || is_called<index>("3DBatch")) {
    return {CopyWay::kOnGpu, 0};
  } else if constexpr (is_called<index>("2D") || is_called<index>("3D")) {
    return described_copy(is_called<index>("3D"), parameters...);
  } else if constexpr (is_called<index>("Batch")) {
    return batch(parameters...);
  } else if constexpr (is_called<index>("HtoD") || is_called<index>("HtoA")) {
    return {CopyWay::kToGpu, last_size(parameters...)};
  } else if constexpr (is_called<index>("DtoH") || is_called<index>("AtoH")) {
    return {CopyWay::kFromGpu, last_size(parameters...)};
  } else if constexpr (is_called<index>("DtoD") || is_called<index>("DtoA") ||
                       is_called<index>("AtoD") || is_called<index>("AtoA")) {
    return {CopyWay::kOnGpu, last_size(parameters...)};
  } else {
    return unified_copy(parameters...);
  }
}

// --- one call -----------------------------------------------------------------------------------

// Before the driver's call: what runs kernels. A fill counts as a kernel, whose function is the one
// that the program called.
template <int index, Kind kind, class... Parameters>
void tell_before(Progress& all, uint64_t stream, const Parameters&... parameters) {
  if constexpr (kind == Kind::kLaunch) {
    tell_launch(all, stream, parameters...);
  } else if constexpr (kind == Kind::kOnGpu && is_called<index>("cuMemset")) {
    all.launched(1 + index, 1, stream);
  }
}

inline void tell_event(Progress& all, uint64_t stream, CUstream, CUevent, unsigned) {
  all.ordered(stream);
}
template <class... Flags>
void tell_event(Progress& all, uint64_t stream, CUevent event, CUstream, Flags...) {
  all.recorded(event, stream);
}

// After the driver's call: copies, events and waits. A query counts only if it ended a loop of
// queries.
template <int index, Kind kind, class... Parameters>
void tell_after(Progress& all, CUresult result, uint64_t stream, const Parameters&... parameters) {
  constexpr bool is_question = is_called<index>("Query");
  if constexpr (is_question) {
    if (!Progress::has_polled(~(uint64_t{0} | ... | number(parameters)), result)) return;
  }
  if (result != CUDA_SUCCESS) return;
  if constexpr (kind == Kind::kCopy || (kind == Kind::kOnGpu && !is_called<index>("cuMemset"))) {
    const CopyTold told = copy_told<index>(parameters...);
    const bool waits =
        !is_called<index>("Async") && (told.way == CopyWay::kFromGpu ||
                                       (told.way == CopyWay::kToGpu && told.bytes > kStagedBytes));
    all.copied(told.way, told.bytes, waits, stream);
  } else if constexpr (kind == Kind::kWait) {
    all.waited(stream);
  } else if constexpr (kind == Kind::kEvent) {
    tell_event(all, stream, parameters...);
  } else if constexpr (kind == Kind::kFinish && is_called<index>("cuEvent")) {
    (all.waited_for(parameters), ...);
  } else if constexpr (kind == Kind::kFinish) {
    all.waited(IterationRecogniser::kAllStreams);
  }
}

}  // namespace gpushare::shim
