// SPDX-License-Identifier: Apache-2.0
// What a process says of its iterations (ShimIterations in shmctl/shim/slot.h), as far as a policy
// wants it. The process wrote it, so it may be stopped in the middle of a write, dying, or lying:
// whoever reads gets values in their ranges, or nothing. What can only be told from two readings is
// checked in sched/slo/round.h. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "shmctl/shim/slot.h"

namespace gpushare {

struct SloReading {
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille
  // As in the slot; sums over the life of the process.
  uint64_t ended = 0, busy_ns = 0, latency_ns = 0, arrivals = 0;
  uint64_t p99_ns = 0;  // 0: unknown
  // Of all threads, by the process's other count; read_iterations() leaves it 0.
  uint64_t launches = 0;
  uint32_t slo_us = 0;  // what the program asks for; 0: nothing

  bool operator==(const SloReading&) const = default;
};

// nullopt: it is being written, and was at every one of a few looks.
std::optional<SloReading> read_iterations(const ShimIterations& iterations);

// Is there something to go by: announced, or recognised well enough?
bool is_trusted(const SloReading& reading);

}  // namespace gpushare
