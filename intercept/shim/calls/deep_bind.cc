// SPDX-License-Identifier: Apache-2.0
// Called by dlopen() of entry.S, before libc's, if the library is to be bound deeply. On the
// program's thread, which may be in any code but the shim's own.
#include "intercept/shim/driver/bypass.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/streams/streams.h"

extern "C" void gs_note_deep_bind() {
  using namespace gpushare::shim;
  if (is_driver_bypassed.exchange(true, std::memory_order_seq_cst)) return;
  Process* const process = detail::process.load(std::memory_order_acquire);
  Streams* const all =
      process == nullptr ? nullptr : process->streams.load(std::memory_order_acquire);
  if (all == nullptr) return;
  const KeepErrno errno_of_the_program;
  all->note_bypass();
}
