// SPDX-License-Identifier: Apache-2.0
// What the kernels of tests/workloads compute, as arithmetic on the host. All of it is modulo 2^32,
// so that every GPU and the simulation give the same bits: the workloads take their expected
// results from here, and the stand-in libcuda takes the effect of a launch. Pure; any thread may
// call.
//
// A thread of a busy kernel applies x -> mul * x + add many times. n such rounds are again one map
// of that form, and the sum over threads can be mapped as a whole: about twenty multiplications
// give the result of a 2 ms kernel of 135,168 threads.
#pragma once

#include <cstdint>
#include <vector>

namespace gpushare::kernels {

// The map x -> mul * x + add.
struct Affine {
  uint32_t mul = 1;
  uint32_t add = 0;

  constexpr uint32_t operator()(uint32_t x) const { return mul * x + add; }
  // The sum of the results for `count` values whose sum is `sum`.
  constexpr uint32_t of_sum(uint32_t sum, uint32_t count) const { return mul * sum + count * add; }
  // The map that applies this one and then `next`.
  constexpr Affine then(Affine next) const { return {next.mul * mul, next(add)}; }
  // The map that applies this one `n` times.
  constexpr Affine times(uint64_t n) const {
    Affine result, power = *this;
    for (; n != 0; n >>= 1, power = power.then(power))
      if (n & 1) result = result.then(power);
    return result;
  }
  // The inverse map. Requires an odd `mul`. Each of Newton's steps doubles the number of right
  // bits: 3, 6, 12, 24, 48.
  constexpr Affine inverse() const {
    uint32_t reciprocal = mul;
    for (int i = 0; i < 4; ++i) reciprocal *= 2 - mul * reciprocal;
    return {reciprocal, 0u - reciprocal * add};
  }
};

// One round, and how many rounds make one unit of the kernels' work.
inline constexpr Affine kRound{1664525, 1013904223};
inline constexpr uint32_t kRoundsPerUnit = 16;

// Thread t of a busy kernel starts from seed + t * kThreadStride.
inline constexpr uint32_t kThreadStride = 0x9E3779B9;

// The sum of the start values of `count` threads from `first_thread` on.
constexpr uint32_t sum_of_starts(uint32_t seed, uint64_t first_thread, uint64_t count) {
  const uint64_t between = count * (count - 1) / 2;  // 0 + 1 + ... + (count - 1)
  return static_cast<uint32_t>(count) * seed +
         kThreadStride * static_cast<uint32_t>(first_thread * count + between);
}

// What gs_fill writes to element i.
constexpr uint32_t fill_value(uint32_t seed, uint32_t i) {
  uint32_t x = seed + i * kThreadStride;
  x ^= x >> 16;
  return x * 0x85EBCA6B;
}

// What gs_mix makes of `to` when it mixes `from` into it.
constexpr uint32_t mix_value(uint32_t to, uint32_t from) {
  uint32_t x = (to ^ from) * 0xC2B2AE35;
  x ^= x >> 15;
  return x + to;
}

// What element i adds to the sum of gs_fold.
constexpr uint32_t fold_value(uint32_t value, uint32_t i) { return value * (2 * i + 1); }

using Buffers = std::vector<std::vector<uint32_t>>;

// What gs_fill makes of so many buffers, the first from `seed`, each further one from the next.
inline Buffers filled(uint64_t count, uint64_t words, uint64_t seed) {
  Buffers buffers(count, std::vector<uint32_t>(words));
  for (auto& buffer : buffers) {
    for (uint32_t i = 0; i < words; ++i) buffer[i] = fill_value(static_cast<uint32_t>(seed), i);
    ++seed;
  }
  return buffers;
}

// What gs_fold adds up over all of them.
inline uint32_t folded(const Buffers& buffers) {
  uint32_t sum = 0;
  for (const auto& buffer : buffers)
    for (uint32_t i = 0; i < buffer.size(); ++i) sum += fold_value(buffer[i], i);
  return sum;
}

}  // namespace gpushare::kernels
