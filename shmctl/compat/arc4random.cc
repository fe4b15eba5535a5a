// SPDX-License-Identifier: Apache-2.0
// A definition of arc4random() for every program that we link. A libstdc++ that was built beside
// glibc 2.36 calls it from std::random_device, so without this file our programs would need that
// glibc; with it they run from glibc 2.34 on. `make dist` checks that no newer symbol is left.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() {
  uint32_t value = 0;
  // The call never returns fewer bytes for so small a size (getrandom(2)), and it fails only on
  // kernels before 3.17.
  if (::getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}
