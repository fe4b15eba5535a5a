// SPDX-License-Identifier: Apache-2.0
// The kernels that the stand-in knows by entry name: those of tests/workloads/common/kernels.ptx.h.
// Each has a cost (how long the GPU would take for it alone) and an effect on memory, which the
// host computes when the simulated kernel ends, with the same bits as the GPU (cuda/kernel_math.h).
//
// The costs are those of an H200: 1.98 GHz, 4 schedulers per SM, 3.5 TB/s of memory in practice. A
// round is one integer multiply-add. A scheduler issues one for a warp every 2 cycles, and a warp
// waits 4 cycles for its own result, so with w warps per scheduler a round takes max(4, 2 w)
// cycles. Example: 4 blocks of 256 threads per SM (spin) are 8 warps per scheduler, 16 cycles a
// round and 129 ns for a unit of 16 rounds. Every kernel also takes kKernelOverheadNs, and kernels
// that stream memory the time for their bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "intercept/sim/libcuda/memory/memory_map.h"

namespace gpushare::standin {

inline constexpr uint64_t kKernelOverheadNs = 2'000;
inline constexpr double kMemoryBytesPerNs = 3'500;

inline constexpr uint64_t kMaxThreadsPerBlock = 1024;

// How many blocks of so many threads are on an SM at once: it takes 64 warps and 32 blocks.
constexpr uint64_t blocks_of_sm(uint64_t threads_per_block) {
  constexpr uint64_t kWarps = 64, kBlocks = 32;
  const uint64_t warps = (threads_per_block + 31) / 32;
  return warps == 0 ? kBlocks : kWarps / warps < kBlocks ? kWarps / warps : kBlocks;
}

// SMs are given to partitions in groups of so many, as the driver does on an H200.
inline constexpr uint32_t kSmsOfGroup = 8;

// The number of SMs in a set of groups of a GPU with `all` SMs, whose last group has the remainder.
constexpr uint32_t sms_in(uint64_t groups, uint32_t all) {
  const uint32_t sms = kSmsOfGroup * static_cast<uint32_t>(std::popcount(groups));
  const uint32_t odd = all % kSmsOfGroup, last = all / kSmsOfGroup;
  return odd != 0 && last < 64 && (groups >> last & 1) != 0 ? sms - kSmsOfGroup + odd : sms;
}

// How many groups the driver makes of a GPU; what it leaves over lies behind them. It is one group
// less than would fit, as on an H200 with 132 SMs: 15, and 12 SMs are left.
constexpr uint32_t split_groups(uint32_t all) {
  const uint32_t fitting = all / kSmsOfGroup;
  return std::min(fitting > 1 ? fitting - 1 : fitting, 62U);
}

struct KernelLaunch {
  uint64_t blocks = 1;
  uint64_t threads_per_block = 1;
  uint32_t sm_count = 1;            // how many SMs it may use
  std::vector<uint64_t> arguments;  // widened, in the order of the kernel's parameters
  uint64_t sm_groups = 0;           // the set of groups that it may use; 0 means the whole GPU
};

struct KernelModel {
  std::string_view name;
  std::span<const uint8_t> parameter_bytes;
  // The time that it takes alone on the GPU; for an endless kernel that of one turn.
  uint64_t (*cost_ns)(const KernelLaunch&);
  // Has the effect. Returns false when the kernel touched memory that it may not, for which the GPU
  // reports an illegal address. Null for a kernel without an effect.
  bool (*run)(const KernelLaunch&, const MemoryMap&);
  bool is_endless = false;
  // Its blocks wait for each other: it never ends where they are not on the GPU all at once.
  bool is_meeting = false;

  bool ends(const KernelLaunch& launch) const {
    return !is_meeting || launch.blocks <= launch.sm_count * blocks_of_sm(launch.threads_per_block);
  }
};

// Null for a kernel that the stand-in does not know.
const KernelModel* find_kernel(std::string_view name);

// The counters and the stop flag of an endless kernel, which Watcher updates while it runs.
struct EndlessMemory {
  uint64_t* turns = nullptr;  // one counter per block
  const uint32_t* stop = nullptr;
};
// The pointers are null when the kernel may not touch that memory.
EndlessMemory endless_memory(const KernelLaunch& launch, const MemoryMap& memory);

}  // namespace gpushare::standin
