// SPDX-License-Identifier: Apache-2.0
// A value that another thread changes all the time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>

namespace gpushare {

// Runs `body` while another thread writes two values in turns. Each stays for a random time, so
// that no rhythm of the machine hides one.
template <class Cell, class Body>
void while_changing(Cell& value, std::type_identity_t<Cell> one, std::type_identity_t<Cell> other,
                    Body body) {
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    const std::atomic_ref<Cell> cell(value);
    for (uint32_t n = 1; !is_over; n = n * 1664525 + 1013904223) {
      cell = (n & 0x80000000) != 0 ? other : one;
      for (uint32_t spin = n >> 20; spin > 0; --spin) asm volatile("");
    }
  });
  body();
  is_over = true;
  writer.join();
}

}  // namespace gpushare
