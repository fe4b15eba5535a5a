// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?": the known word nearest to a misspelt one.
#pragma once

#include <span>
#include <string_view>

namespace gpushare {

// The candidate with the smallest edit distance to `word` (insert, delete, replace, swap of
// neighbours), the first of equals; empty when none is near enough to be a slip (a third of its
// letters, at least 1). `word` longer than 64 characters finds nothing.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace gpushare
