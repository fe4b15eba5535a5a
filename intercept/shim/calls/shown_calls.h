// SPDX-License-Identifier: Apache-2.0
// What a program is told of the size of its GPU, where its tenant asks for it to be shown its
// partition instead (sm_shown): the number of SMs, and those answers of the occupancy calculator
// that are in proportion to it. On the program's thread, and only in processes with the feature
// kShimShown. Part of wrappers.cc.
#pragma once

#include "intercept/shim/driver/occupancy.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

// What the program is shown of a device with `all` SMs. What it was shown first holds, also when
// the agent is another one by now and says another number.
inline int shown_sms(CUdevice device, int all) {
  constexpr int kMostDevices = 64;
  static constinit std::atomic<int> first[kMostDevices] = {};
  if (device < 0 || device >= kMostDevices || all <= 0) return all;
  int shown = first[device].load(std::memory_order_relaxed);
  if (shown != 0) return shown;
  const KeepErrno errno_of_the_program;
  const OccupancyDriver* const driver = occupancy_driver();
  const int place = driver == nullptr ? -1 : place_in_slot(*driver, device);
  if (place < 0) return all;  // it may be shared later
  const uint32_t told = slot().sms_shown[place].load(std::memory_order_relaxed);
  const int now = told == 0 || told > static_cast<uint32_t>(all) ? all : static_cast<int>(told);
  return first[device].compare_exchange_strong(shown, now, std::memory_order_relaxed) ? now : shown;
}

// A number that is in proportion to the SMs of the current context's device, rounded down, but
// never down to none.
inline int shown_part(int of_all) {
  const OccupancyDriver* const driver = occupancy_driver();
  const CurrentDevice at = driver == nullptr ? CurrentDevice{} : current_device(*driver);
  if (at.sms == 0) return of_all;
  const auto part = static_cast<int>(int64_t{of_all} * shown_sms(at.device, at.sms) / at.sms);
  return of_all > 0 && part == 0 ? 1 : part;
}

template <int index, class Signature>
struct ShownAttribute {
  static CUresult call(int* value, CUdevice_attribute attribute, CUdevice device) {
    const CUresult result =
        real<CUresult (*)(int*, CUdevice_attribute, CUdevice)>(index)(value, attribute, device);
    if (result == CUDA_SUCCESS && attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
      *value = shown_sms(device, *value);
    return result;
  }
};

// The first argument is how many blocks, or clusters, the whole GPU takes.
template <int index, class Signature>
struct ShownPart;
template <int index, class... Rest>
struct ShownPart<index, CUresult(int*, Rest...)> {
  static CUresult call(int* number, Rest... rest) {
    const CUresult result = real<CUresult (*)(int*, Rest...)>(index)(number, rest...);
    if (result == CUDA_SUCCESS && number != nullptr) *number = shown_part(*number);
    return result;
  }
};

}  // namespace gpushare::shim
