// SPDX-License-Identifier: Apache-2.0
// The numbers that the recogniser gives functions and transitions. They have 32 bits: among the few
// hundred functions of a program two share a number about once in 100,000 programs. Pure.
#pragma once

#include <cstdint>

namespace gpushare::shim {

// Never 0.
constexpr uint32_t function_number(uint64_t handle) {
  return static_cast<uint32_t>((handle * 0x9E3779B97F4A7C15ULL) >> 32) | 1;
}

constexpr uint32_t transition_number(uint32_t from, uint32_t to) {
  return static_cast<uint32_t>(((static_cast<uint64_t>(from) << 32 | to) * 0xD6E8FEB86659FD93ULL) >>
                               32);
}

// 0 for 0, otherwise 1 + the whole part of the logarithm to base 2.
constexpr uint32_t bits_of(uint32_t value) {
  return value == 0 ? 0 : 32 - static_cast<uint32_t>(__builtin_clz(value));
}

}  // namespace gpushare::shim
