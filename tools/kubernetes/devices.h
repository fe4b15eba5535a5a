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
  std::string uuid;           // empty: not known, as of one that the agent has not opened
  uint32_t index = 0;         // the agent's number of it
  uint64_t memory_bytes = 0;  // 0: not known
  bool is_open = true;        // false: it was, and the agent has not opened it again yet
  bool operator==(const SharedGpu&) const = default;
};

// What the kubelet is told of a device. It gives none away that is not healthy.
struct KubeletDevice {
  std::string id;
  bool is_healthy = true;
  bool operator==(const KubeletDevice&) const = default;
};

// The kubelet takes a list of at most 16 MiB.
inline constexpr uint64_t kMostDevices = 65'536;

// The GPUs that are shared when the agent lists `seen` and `before` were shared: those of which it
// says the UUID, and in place of each other one that which had its index before, as not open.
std::vector<SharedGpu> gpus_to_share(std::span<const SharedGpu> before,
                                     std::span<const SharedGpu> seen);
// The memory of the smallest GPU of which it is known; 0: of none it is.
uint64_t smallest_memory(std::span<const SharedGpu> gpus);

// IDs of `count` devices of each GPU.
std::vector<std::string> share_ids(std::span<const SharedGpu> gpus, uint32_t count);
// IDs of as many devices as there are whole units of memory; none for a GPU whose memory is not
// known. REQUIRES: unit > 0.
std::vector<std::string> memory_ids(std::span<const SharedGpu> gpus, uint64_t unit);
// The devices of these IDs, which are healthy while their GPUs are open; with `are_healthy` false
// none is.
std::vector<KubeletDevice> devices_of(std::span<const std::string> ids,
                                      std::span<const SharedGpu> gpus, bool are_healthy);

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
