// SPDX-License-Identifier: Apache-2.0
// How a wrapper tells the recogniser of iterations of its call: whether it has to, on which stream
// the call is, and the short way for a kernel that only needs to be written down. On the program's
// thread. Part of wrappers.cc.
#pragma once

#include "intercept/shim/calls/told_calls.h"
#include "intercept/shim/driver/arguments.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {

// Returns true if a call of this kind is of interest to the recogniser.
constexpr bool says_something(Kind kind) {
  return (features_that_need(kind) & kShimIterations) != 0;
}
[[gnu::always_inline]] inline bool is_told() {
  return this_process().is_telling.load(std::memory_order_relaxed);
}

// The stream where `handle` is now, for a question to the driver; the caller does not use it.
inline CUstream physical_of(CUstream handle, Flavor flavor) {
  if (!may_move()) return handle;
  Streams* all = Streams::get();
  const Stream* known = all == nullptr ? nullptr : all->find(handle, flavor);
  return known == nullptr ? handle : known->physical();
}

// Gives the stream's number for Progress. Returns false if this call is not to be told: the program
// announces its iterations itself, or the stream captures, so that nothing runs.
template <Flavor flavor>
[[gnu::noinline]] bool may_tell(Progress& all, CUstream handle, uint64_t* stream) {
  if (!all.is_guessing() ||
      (all.is_any_capturing() && all.is_capturing(physical_of(handle, flavor))))
    return false;
  *stream = Progress::number_of(handle, flavor);
  return true;
}

// Writes a kernel down if the recogniser needs to know no more of it now. False: it is to be told.
template <Flavor flavor, class... Rest>
[[gnu::always_inline]] inline bool has_written_down(CUfunction function, unsigned x, unsigned y,
                                                    unsigned z, const Rest&... rest) {
  Progress* const all = this_process().progress.load(std::memory_order_acquire);
  return all != nullptr &&
         all->has_written_down(number(function), blocks_of(x, y, z),
                               Progress::number_of(first_of<CUstream>(rest...), flavor));
}
template <Flavor flavor>
[[gnu::always_inline]] inline bool has_written_down(const CUlaunchConfig* config,
                                                    CUfunction function, void**, void**) {
  Progress* const all = this_process().progress.load(std::memory_order_acquire);
  return all != nullptr && config != nullptr &&
         all->has_written_down(number(function),
                               blocks_of(config->gridDimX, config->gridDimY, config->gridDimZ),
                               Progress::number_of(config->hStream, flavor));
}
template <Flavor flavor, class... Parameters>
bool has_written_down(const Parameters&...) {
  return false;
}

// Tells of a launch before it is made. This is given no more than it looks at, so that the other
// launch arguments stay in registers.
template <int index, Kind kind, Flavor flavor, class... Told>
[[gnu::noinline]] void tell(CUstream handle, Told... told) {
  Progress* all = Progress::get();
  uint64_t stream = 0;
  if (all != nullptr && may_tell<flavor>(*all, handle, &stream))
    tell_before<index, kind>(*all, stream, told...);
}
template <int index, Kind kind, Flavor flavor, class... Rest>
void tell_of_launch(CUfunction function, unsigned x, unsigned y, unsigned z, const Rest&... rest) {
  tell<index, kind, flavor>(first_of<CUstream>(rest...), function, x, y, z);
}
template <int index, Kind kind, Flavor flavor, class... Rest>
void tell_of_launch(const CUlaunchConfig* config, Rest... rest) {
  if (config != nullptr) tell<index, kind, flavor>(config->hStream, config, rest...);
}
template <int index, Kind kind, Flavor flavor, class... Parameters>
void tell_of_launch(const Parameters&... arguments) {
  tell<index, kind, flavor>(first_of<CUstream>(arguments...), arguments...);
}

}  // namespace gpushare::shim
