// SPDX-License-Identifier: Apache-2.0
// The devices that the kubelet counts: each GPU is so many shares, and so many units of memory. A
// device's ID is "GPU.NUMBER", where GPU is the UUID. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare {

struct SharedGpu {
  std::string uuid;
  uint32_t index = 0;         // the agent's number of it
  uint64_t memory_bytes = 0;  // 0: not known
  bool operator==(const SharedGpu&) const = default;
};

// The kubelet takes a list of at most 16 MiB.
inline constexpr uint64_t kMostDevices = 65'536;

// IDs of `count` devices of each GPU.
std::vector<std::string> share_ids(std::span<const SharedGpu> gpus, uint32_t count);
// IDs of as many devices as there are whole units of memory; none for a GPU whose memory is not
// known. REQUIRES: unit > 0.
std::vector<std::string> memory_ids(std::span<const SharedGpu> gpus, uint64_t unit);

// The part before the last '.', which is the whole text if there is none.
std::string gpu_of(std::string_view id);
// The GPUs of these devices, each once, sorted.
std::vector<std::string> gpus_of(std::span<const std::string> ids);

// The device files of these GPUs that a container needs. The plugin's own container has none of
// them, and so cannot tell whether the node has.
std::vector<std::string> device_files(std::span<const SharedGpu> gpus,
                                      std::span<const std::string> uuids);

// Whether a container may have these shares: all of one GPU, or whole GPUs of `per_gpu` shares.
// The error, invalid_argument, says what is allowed.
Result<> check_shares(std::span<const std::string> ids, uint32_t per_gpu);

// Which of `available` a container should get that asks for `size` shares: those of the GPU on
// which the fewest are left over, or whole GPUs. `must` are taken in any case. If it fits nowhere,
// the answer is what the kubelet would have taken, which check_shares() then refuses.
std::vector<std::string> preferred_shares(std::span<const std::string> available,
                                          std::span<const std::string> must, uint32_t size,
                                          uint32_t per_gpu);

}  // namespace gpushare
