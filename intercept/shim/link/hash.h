// SPDX-License-Identifier: Apache-2.0
// Where in a table of fixed size the driver's handles are looked for. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace gpushare::shim {

// By the high bits of a product (Knuth, The Art of Computer Programming, 6.4), which depend on all
// bits of the handle: handles are addresses that differ in few bits.
template <uint32_t size>
constexpr uint32_t place_in_table(uint64_t handle) {
  static_assert(size > 1 && std::has_single_bit(size));
  return static_cast<uint32_t>(handle * 0x9E3779B97F4A7C15 >> (64 - std::countr_zero(size)));
}

}  // namespace gpushare::shim
