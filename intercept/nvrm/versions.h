// SPDX-License-Identifier: Apache-2.0
// Says which drivers and channel classes are known. Pure; any thread may call. Programs on an
// unknown one are only observed: a control that means something else there could harm a tenant.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpushare::nvrm {

enum class Trust {
  kMeasured,  // every control that the agent uses was measured to work
  kHeaders,   // its public headers agree with abi.h; it was not tried
  kUnknown,   // programs are only observed
};

// `version` is the driver's own text: "580.159.04".
Trust driver_trust(std::string_view version);

// GPFIFO channel classes, Volta to Blackwell (class/cl*6f.h).
bool is_known_channel_class(uint32_t class_id);

}  // namespace gpushare::nvrm
