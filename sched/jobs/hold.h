// SPDX-License-Identifier: Apache-2.0
// What is known of the processes of a job when it is decided how they are held, and how each is
// held. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// One process of a job, on all GPUs that it works on.
struct ProcessLook {
  // Less of the GPU than this is no work: the hardware also switches to a context that has nothing
  // to do, for the 180 to 200 us that two switches take (docs/driver-facts.md).
  static constexpr Nanos kLeastWork = std::chrono::microseconds(500);

  // One without the shim that has surely had nothing to do for so long does not want the GPU.
  static constexpr Nanos kRest = std::chrono::milliseconds(5);

  ProcessId process{};
  bool has_shim = false;      // it can be held at its gate
  bool has_boundary = false;  // its iterations are trusted: it can be held between two of them
  bool can_freeze = true;     // false: a client of MPS, or the driver refuses
  bool is_frozen = false;     // on every GPU
  bool is_out = false;        // it cannot run for another reason: its cap, or the user's word
  bool only_starts = false;   // what it does is done beside whoever has the turn (Starts)
  bool wants_gpu = false;     // by the switch log; while frozen: as it was before
  bool was_at_work = false;  // by the log, on any GPU: it had it for kLeastWork since the last look
  // Of a process with the shim.
  std::optional<Time> at_boundary{};  // since when a thread stands there
  bool waits_for_work = false;        // a thread waits for what it has launched
  bool is_at_gate = false;            // a thread stands there
  bool is_done = false;  // it says that its work is done, and has launched nothing since
  uint64_t begun = 0;    // iterations
  Time began{};          // the last of them; zero: unknown
  uint64_t launches = 0;
  Time last_launch{};
};

// What a process is told. All at their defaults: it runs as it likes.
struct ProcessHold {
  ProcessId process{};
  uint64_t run_until = 0;  // the next iteration waits when so many have begun; 0: none waits
  bool is_gate_closed = false;
  bool is_frozen = false;

  bool operator==(const ProcessHold&) const = default;
};

// From the mildest on, how a process is stopped.
enum class Rung : uint8_t { kNone = 0, kBoundary = 1, kGate = 2, kFreeze = 3 };

}  // namespace gpushare
