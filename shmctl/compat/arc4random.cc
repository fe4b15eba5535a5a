// SPDX-License-Identifier: Apache-2.0
// glibc 2.36 has arc4random(), and a libstdc++ built there calls it from std::random_device. Linked
// statically it would make our programs need that glibc; with this definition in every program they
// run from glibc 2.34 on. `make dist` checks that no newer symbol is left.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() {
  uint32_t value = 0;
  // Never short for so few bytes (getrandom(2)); fails only on kernels before 3.17.
  if (::getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}
