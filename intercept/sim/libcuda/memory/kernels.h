// SPDX-License-Identifier: Apache-2.0
// The kernels that the stand-in knows, by entry name: those of
// tests/workloads/common/kernels.ptx.h. Each has a cost (how long the GPU would take for it alone)
// and an effect on memory, which is computed on the host when the simulated kernel ends and has the
// same bits as the GPU's (intercept/cuda/kernel_math.h).
//
// Cost model, of an H200 (SM clock 1.98 GHz, 4 schedulers an SM, 3.5 TB/s of memory in practice): a
// round is one integer multiply-add. A scheduler issues one for a warp every 2 cycles, and a warp
// waits 4 cycles for its own result; so with w warps on each scheduler a round takes max(4, 2 w)
// cycles. spin's 4 blocks of 256 threads on each SM: 8 warps, 16 cycles, 129 ns for a unit of 16
// rounds. Every kernel takes kKernelOverheadNs besides; kernels that stream memory take their
// bytes.
#pragma once

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

// SMs are handed out in groups, as the driver does on an H200.
inline constexpr uint32_t kSmsOfGroup = 8;

// The SMs of a set of groups, of a GPU of `all`: its last group has what the others leave.
constexpr uint32_t sms_in(uint64_t groups, uint32_t all) {
  const uint32_t sms = kSmsOfGroup * static_cast<uint32_t>(std::popcount(groups));
  const uint32_t odd = all % kSmsOfGroup, last = all / kSmsOfGroup;
  return odd != 0 && last < 64 && (groups >> last & 1) != 0 ? sms - kSmsOfGroup + odd : sms;
}

struct KernelLaunch {
  uint64_t blocks = 1;
  uint64_t threads_per_block = 1;
  uint32_t sm_count = 1;            // that it may use
  std::vector<uint64_t> arguments;  // widened, in the order of the kernel's parameters
  uint64_t sm_groups = 0;           // of kSmsOfGroup each, those that it may use; 0: the whole GPU
};

struct KernelModel {
  std::string_view name;
  std::span<const uint8_t> parameter_bytes;
  // Time alone on the GPU. Of an endless kernel: of one turn.
  uint64_t (*cost_ns)(const KernelLaunch&);
  // False when it touched memory that it may not: the GPU would report an illegal address.
  // Null for a kernel without an effect.
  bool (*run)(const KernelLaunch&, const MemoryMap&);
  bool is_endless = false;
};

// Null if unknown.
const KernelModel* find_kernel(std::string_view name);

// The endless kernel's counters and stop flag, for whoever keeps them going while it runs.
struct EndlessMemory {
  uint64_t* turns = nullptr;  // one a block
  const uint32_t* stop = nullptr;
};
// Null pointers when the kernel may not touch them.
EndlessMemory endless_memory(const KernelLaunch& launch, const MemoryMap& memory);

}  // namespace gpushare::standin
