// SPDX-License-Identifier: Apache-2.0
// Finds the kernels that a PTX text defines. The stand-in compiles nothing and knows kernels by
// name. Pure; any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpushare::standin {

// Returns the names after ".entry", in their order; nullopt when the text is no PTX, because it has
// no
// ".version" and ".target" before the first entry.
std::optional<std::vector<std::string>> ptx_entries(std::string_view text);

}  // namespace gpushare::standin
