// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/bypass.h"

#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

constinit std::atomic<bool> is_driver_bypassed{false};
constinit std::atomic<void (*)()> when_driver_is_bypassed{nullptr};

}  // namespace gpushare::shim

void gs_note_deep_bind() {
  using namespace gpushare::shim;
  if (is_driver_bypassed.exchange(true, std::memory_order_seq_cst)) return;
  const KeepErrno errno_of_the_program;
  if (const auto call = when_driver_is_bypassed.load(std::memory_order_seq_cst)) call();
}
