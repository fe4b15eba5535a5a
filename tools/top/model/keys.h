// SPDX-License-Identifier: Apache-2.0
// The keys of gpushare-top: what the terminal reports, what the help screen and the manual say of
// them, and which ones the last line of the screen offers. Plain values.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace gpushare {

struct Key {
  enum class Kind {
    kCharacter,
    kFunction,  // F1 to F12; `character` is the number
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kEscape,
    kBackspace,
    kClick,  // of the mouse, at (x, y)
    kWheelUp,
    kWheelDown,
  };
  Kind kind = Kind::kCharacter;
  char character = 0;
  size_t x = 0, y = 0;
};

// For the help screen; the test of the man page reads them too.
struct KeyHelp {
  std::string_view keys;
  std::string_view text;
};
std::span<const KeyHelp> top_keys();

// What the last line offers: "F1 Help". A click on it is that key.
struct FooterKey {
  std::string_view name;
  std::string_view label;
  Key key;
};
std::span<const FooterKey> footer_keys();

}  // namespace gpushare
