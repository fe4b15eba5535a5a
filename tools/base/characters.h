// SPDX-License-Identifier: Apache-2.0
// Characters of UTF-8 text: where one ends, and how many columns of a terminal it takes. Any
// thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpushare {

struct Character {
  size_t bytes = 1;
  // 1 or 2 columns. 0: it is none that can be shown by itself, for example a control character, a
  // mark that joins the one before it or turns the direction of writing, or no UTF-8.
  size_t columns = 0;
};

// Returns the first character of `text`. What is not UTF-8 is one byte, and what is cut off at the
// end of the text is all that is left of it. Requires: `text` is not empty.
Character first_character(std::string_view text);

// Returns whether what is written is shown as UTF-8, by the environment when it was first asked:
// LC_ALL, LC_CTYPE, LANG, the first that is set.
bool is_output_utf8();

}  // namespace gpushare
