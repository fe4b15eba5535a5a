// SPDX-License-Identifier: Apache-2.0
// Whether a process lives. That can also be unknown: without a free descriptor, for example,
// nothing can be read of it. What was done to a process is forgotten only when its end is proven.
// Any thread may call.
#pragma once

#include <cstdint>

#include "shmctl/base/process_id.h"

namespace gpushare {

enum class Life : uint8_t {
  kAlive,
  kEnded,  // proven: no process has the pid, or another one, or all of its threads have ended
  kUnknown,
};

// A `start_ticks` of 0 stands for whichever process has the pid.
Life life_of(const ProcessId& process);

}  // namespace gpushare
