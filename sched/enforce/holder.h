// SPDX-License-Identifier: Apache-2.0
// Holder: what a process has on one GPU that can be controlled: its compute channel groups and
// their channels. The registry makes holders; the enforcer controls what they name. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "intercept/gpu.h"

namespace gpushare {

struct ComputeGroup {
  GroupRef ref;
  uint64_t serial = 0;             // another one when the handle was freed and used again
  std::vector<uint32_t> channels;  // ascending
  std::vector<uint64_t> serials;   // of the channels, as above
  // The slice that the process chose itself (the CUDA driver does once at start), and how often:
  // when the count moves, whatever we had set is gone.
  std::optional<Micros> own_slice;
  uint32_t own_slice_count = 0;
};

struct Holder {
  ProcessId process;
  uint32_t gpu = 0;
  std::vector<ComputeGroup> groups;    // ordered by client and group handle
  std::set<uint32_t> channel_classes;  // of their channels
  uint64_t memory_bytes = 0;           // video memory on this GPU
  uint64_t generation = 0;             // moves when groups, channels or own slices change
};

}  // namespace gpushare
