// SPDX-License-Identifier: Apache-2.0
// What makes a device: its argument, for programs that run in the guest.
#pragma once

#include <cstdint>

#include "intercept/nvrm/abi.h"

// `params` must live until the call.
inline gs_nvos64 device_below(uint32_t client, uint32_t handle, gs_device_params& params) {
  gs_nvos64 device{};
  device.h_root = device.h_parent = client;
  device.h_new = handle;
  device.h_class = GS_CLASS_DEVICE;
  device.p_params = reinterpret_cast<uintptr_t>(&params);
  device.params_size = sizeof params;
  return device;
}
