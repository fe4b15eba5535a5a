// SPDX-License-Identifier: Apache-2.0
// The kernels that a PTX text defines. The stand-in compiles nothing: it knows kernels by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpushare::standin {

// Names after ".entry", in their order. nullopt when the text is not PTX (no ".version" and
// ".target" before the first entry).
std::optional<std::vector<std::string>> ptx_entries(std::string_view text);

}  // namespace gpushare::standin
