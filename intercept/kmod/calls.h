// SPDX-License-Identifier: Apache-2.0
// What can be said to the kernel module, one function a call; kmod/uapi/gpushare.h is the contract.
// They block on nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "intercept/gpu.h"
#include "intercept/kmod/device.h"
#include "kmod/uapi/gpushare.h"
#include "shmctl/base/clock.h"

namespace gpushare::kmod {

// Asks for the versions. Error protocol_not_supported when the module speaks another one than we
// do: then nothing else may be said to it. Error inappropriate_io_control_operation: it is not our
// device.
Result<gpushare_query> query(Device& device);

// The calling process, with its descendants, may use the scheduling controls from now on.
Result<> register_agent(Device& device);

// Asks for events of everything that lives now.
Result<> replay(Device& device);

// Use of one tenant, since it was made.
struct TenantUsage {
  std::string tenant;
  Micros gpu_time{};   // over all GPUs
  Micros throttled{};  // frozen by its cap
  uint64_t freezes = 0;
  std::optional<uint32_t> share_permille;  // of the last second, nullopt unknown

  bool operator==(const TenantUsage&) const = default;
};
// Any number. A tenant that is not there (it was just removed) is passed over.
Result<> publish(Device& device, std::span<const TenantUsage> usages);

// `sharing`: how programs share it, "time-slicing".
Result<> set_gpu(Device& device, const GpuInfo& gpu, std::string_view sharing);
Result<> set_policy(Device& device, std::string_view name);

}  // namespace gpushare::kmod
