// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?": the known word that is nearest to a misspelt one. Pure.
#pragma once

#include <span>
#include <string_view>

namespace gpushare {

// Returns the candidate with the smallest edit distance to `word` (insert, delete, replace, swap of
// neighbours), and the first of equals. Returns an empty text when none is near enough to be a slip
// (a third of the candidate's letters, at least one), or when `word` has more than 64 characters.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace gpushare
