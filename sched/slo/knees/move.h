// SPDX-License-Identifier: Apache-2.0
// What the policy `slo` does with a tenant's SMs in one round. It stands below the policy, because
// the search for knees goes on only where nothing moves.
#pragma once

#include <cstdint>

namespace gpushare {

// kStarved: the tenant needs more SMs than there are for it.
enum class SloMove : uint8_t { kHold, kGrow, kShrink, kStarved };

}  // namespace gpushare
