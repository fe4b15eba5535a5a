// SPDX-License-Identifier: Apache-2.0
// Text in the records that processes share: a field of fixed length, ended by a zero unless it is
// full. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace gpushare {

// What stands in the field, which must outlive the result.
template <std::size_t N>
std::string_view text_in(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

// Cut so that a zero ends it; zeros follow it to the end of the field.
template <std::size_t N>
void put_text(char (&field)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::ranges::copy(text.substr(0, length), field);
  std::fill(field + length, field + N, '\0');
}

}  // namespace gpushare
