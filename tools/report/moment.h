// SPDX-License-Identifier: Apache-2.0
// Moments as people type them. Pure, but for the time zone.
#pragma once

#include <string_view>

#include "shmctl/base/error.h"
#include "shmctl/usage/usage.h"

namespace gpushare {

inline constexpr const char* kMomentForms =
    "so long ago (90s, 30m, 24h, 7d, 2w), 'YYYY-MM-DD[ HH:MM[:SS]]' in local time, @SECONDS since "
    "1970, or now";

// Error invalid_argument, with the forms that are allowed.
Result<WallSeconds> parse_moment(std::string_view text, WallSeconds now);

}  // namespace gpushare
