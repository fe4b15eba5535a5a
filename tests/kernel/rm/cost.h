// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "tests/kernel/rm/context.h"

namespace gpushare {

// Returns the time of one call in ns, the least of many. `kind` is that of cost=KIND in
// client.cc.
double cost_ns(Context& context, std::string_view kind);

}  // namespace gpushare
