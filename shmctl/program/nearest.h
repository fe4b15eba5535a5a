// SPDX-License-Identifier: Apache-2.0
// Finds the known word that is nearest to a misspelt one, for "did you mean ...?". Pure; any
// thread.
#pragma once

#include <span>
#include <string_view>

namespace gpushare {

// Returns the candidate with the smallest edit distance to `word` (one step inserts, deletes or
// replaces a letter, or swaps two neighbours), the first among equals. Returns an empty text when
// no candidate is within a third of its own letters (at least 1), or `word` is longer than 64
// letters.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace gpushare
