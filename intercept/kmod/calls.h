// SPDX-License-Identifier: Apache-2.0
// The calls of the kernel module's device, one function for each; kmod/uapi/gpushare.h is the
// contract. The thread that owns the Device calls them, and none of them blocks. Errors: those of
// Device::call().
#pragma once

#include <array>
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

// Asks for the module's versions and where its ring lies. Error protocol_not_supported when the
// module has another interface version than this program, which must then make no other call. Error
// inappropriate_io_control_operation when the file is not the module's device.
Result<gpushare_query> query(Device& device);

// From now on the calling process and its descendants may use the scheduling controls.
Result<> register_agent(Device& device);

// Makes the module write events for everything that exists now.
Result<> replay(Device& device);

// How long processes waited for a GPU, in the terms of the kernel's pressure stall information.
struct PressureFigures {
  Micros total{};                             // since the tenant was made
  uint32_t avg10 = 0, avg60 = 0, avg300 = 0;  // hundredths of a percent, 0 to 10000

  bool operator==(const PressureFigures&) const = default;
};

// What one tenant has used since it was made.
struct TenantUsage {
  std::string tenant;
  Micros gpu_time{};   // summed over all GPUs
  Micros throttled{};  // time for which its cap froze it
  uint64_t freezes = 0;
  uint64_t periods = 0, throttled_periods = 0;  // of its cap: with work; of these, frozen by it
  uint64_t turns = 0;                           // that its jobs had
  Micros held{};                                // time in which a job of it waited for its turn
  PressureFigures some{}, full{};
  std::array<Micros, GPUSHARE_MAX_GPUS> by_gpu{};  // GPU time by GpuInfo::instance
  std::optional<uint32_t> share_permille;          // of the last second; nullopt means unknown

  bool operator==(const TenantUsage&) const = default;
};
// Publishes any number of usages in sysfs. A tenant that was removed meanwhile is left out.
Result<> publish(Device& device, std::span<const TenantUsage> usages);

// Show a GPU, and the policies of all GPUs in a word, in sysfs. `sharing` says how programs share
// the GPU: "time-slicing" or "spatial", and `policy` who decides on it. Texts are cut to the length
// of their field.
Result<> set_gpu(Device& device, const GpuInfo& gpu, std::string_view sharing,
                 std::string_view policy);
Result<> set_policy(Device& device, std::string_view name);

}  // namespace gpushare::kmod
