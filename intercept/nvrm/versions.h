// SPDX-License-Identifier: Apache-2.0
// Which drivers and channel classes we know. An unknown one is only observed: a control that means
// something else there could harm a tenant.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpushare::nvrm {

enum class Trust {
  kMeasured,  // every control of ours was seen to work
  kHeaders,   // its public headers agree with abi.h, untried
  kUnknown,   // observe only
};

// `version`: as the driver says it, "580.159.04".
Trust driver_trust(std::string_view version);

// GPFIFO channel classes, Volta to Blackwell (class/cl*6f.h).
bool is_known_channel_class(uint32_t class_id);

}  // namespace gpushare::nvrm
