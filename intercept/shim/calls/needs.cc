// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/calls/needs.h"

#include "intercept/shim/calls/shown_calls.h"

namespace gpushare::shim {

constinit KnownGrids known_grids{};
constinit std::atomic<uint32_t> captured_sms{0};

// The driver's answer does not depend on where the stream is.
void KnownGrids::ask(Entry& entry, const Grid& grid) {
  const KeepErrno errno_of_the_program;
  const OccupancyDriver* const driver = occupancy_driver();
  const int all = driver == nullptr ? 0 : current_device(*driver).sms;
  int blocks = 0;
  if (all == 0 ||
      driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, grid.function,
                                                          static_cast<int>(grid.threads),
                                                          grid.shared_bytes) != CUDA_SUCCESS ||
      blocks < 0)
    blocks = 0;
  entry.function.store(nullptr, std::memory_order_relaxed);
  entry.blocks_of_sm.store(static_cast<uint32_t>(blocks), std::memory_order_relaxed);
  entry.all_sms.store(static_cast<uint32_t>(all), std::memory_order_relaxed);
  entry.shape.store(shape_of(grid), std::memory_order_relaxed);
  entry.function.store(grid.function, std::memory_order_release);
}

void note_refused(const Grid& grid, int gpu) {
  if (grid.blocks == 0 || gpu < 0) return;
  raise(slot().needs[gpu].refused_sms, known_grids.sms_of(grid, true));
}

}  // namespace gpushare::shim
