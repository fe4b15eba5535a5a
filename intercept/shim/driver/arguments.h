// SPDX-License-Identifier: Apache-2.0
// Which of the arguments of a call of the driver has a type, for wrappers that stand for calls of
// many signatures. On the program's thread.
#pragma once

#include <type_traits>

namespace gpushare::shim {

// The first handle of this type among the arguments; null if there is none.
template <class Handle>
constexpr Handle first_of() {
  return nullptr;
}
template <class Handle, class First, class... Rest>
constexpr Handle first_of(const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, Handle>) {
    return first;
  } else {
    return first_of<Handle>(rest...);
  }
}

}  // namespace gpushare::shim
