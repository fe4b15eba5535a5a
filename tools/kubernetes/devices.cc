// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace gpushare {
namespace {

void add_ids(std::vector<std::string>& ids, const SharedGpu& gpu, uint64_t count) {
  for (uint64_t n = 0; n < count && ids.size() < kMostDevices; ++n)
    ids.push_back(fmt::format("{}.{}", gpu.uuid, n));
}

}  // namespace

std::vector<SharedGpu> gpus_to_share(std::span<const SharedGpu> before,
                                     std::span<const SharedGpu> seen) {
  const auto is_seen = [&](const SharedGpu& gpu) {
    return std::ranges::find(seen, gpu.uuid, &SharedGpu::uuid) != seen.end();
  };
  std::vector<SharedGpu> shared;
  for (const SharedGpu& gpu : seen) {
    if (!gpu.uuid.empty()) {
      shared.push_back(gpu);
      continue;
    }
    const auto known = std::ranges::find(before, gpu.index, &SharedGpu::index);
    // A GPU that has another index now is shared under that.
    if (known == before.end() || is_seen(*known)) continue;
    shared.push_back(*known);
    shared.back().is_open = false;
  }
  return shared;
}

uint64_t smallest_memory(std::span<const SharedGpu> gpus) {
  uint64_t smallest = 0;
  for (const SharedGpu& gpu : gpus)
    if (gpu.memory_bytes > 0 && (smallest == 0 || gpu.memory_bytes < smallest))
      smallest = gpu.memory_bytes;
  return smallest;
}

std::vector<std::string> share_ids(std::span<const SharedGpu> gpus, uint32_t count) {
  std::vector<std::string> ids;
  for (const SharedGpu& gpu : gpus) add_ids(ids, gpu, count);
  return ids;
}

std::vector<std::string> memory_ids(std::span<const SharedGpu> gpus, uint64_t unit) {
  std::vector<std::string> ids;
  for (const SharedGpu& gpu : gpus) add_ids(ids, gpu, gpu.memory_bytes / unit);
  return ids;
}

std::vector<KubeletDevice> devices_of(std::span<const std::string> ids,
                                      std::span<const SharedGpu> gpus, bool are_healthy) {
  std::set<std::string> closed;
  for (const SharedGpu& gpu : gpus)
    if (!gpu.is_open) closed.insert(gpu.uuid);
  std::vector<KubeletDevice> devices;
  devices.reserve(ids.size());
  for (const std::string& id : ids)
    devices.push_back({id, are_healthy && !closed.contains(gpu_of(id))});
  return devices;
}

std::string gpu_of(std::string_view id) { return std::string(id.substr(0, id.rfind('.'))); }

std::vector<std::string> gpus_of(std::span<const std::string> ids) {
  std::set<std::string> gpus;
  for (const std::string& id : ids) gpus.insert(gpu_of(id));
  return {gpus.begin(), gpus.end()};
}

std::vector<std::string> device_files(std::span<const SharedGpu> gpus,
                                      std::span<const std::string> uuids) {
  std::vector<std::string> files = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
  for (const SharedGpu& gpu : gpus)
    if (std::ranges::find(uuids, gpu.uuid) != uuids.end())
      files.push_back(fmt::format("/dev/nvidia{}", gpu.index));
  return files;
}

Result<> check_shares(std::span<const std::string> ids, uint32_t per_gpu) {
  const size_t gpus = gpus_of(ids).size();
  if (gpus <= 1 || ids.size() == gpus * per_gpu) return {};
  return make_error(
      std::errc::invalid_argument, "allocate shares",
      fmt::format("{} shares are left on no single GPU; allowed: up to {} shares of one GPU, or "
                  "a multiple of {} for whole GPUs",
                  ids.size(), per_gpu, per_gpu));
}

std::vector<std::string> preferred_shares(std::span<const std::string> available,
                                          std::span<const std::string> must, uint32_t size,
                                          uint32_t per_gpu) {
  std::vector<std::string> chosen(must.begin(), must.end());
  std::set<std::string> is_chosen(must.begin(), must.end());
  std::map<std::string, std::vector<std::string>> free;  // by GPU
  for (const std::string& id : available)
    if (!is_chosen.contains(id)) free[gpu_of(id)].push_back(id);
  const auto take = [&](const std::vector<std::string>& ids) {
    for (const std::string& id : ids)
      if (chosen.size() < size && is_chosen.insert(id).second) chosen.push_back(id);
  };
  for (const std::string& gpu : gpus_of(must)) take(free[gpu]);
  // Whole GPUs first, then the rest where it fits best.
  for (const auto& [gpu, ids] : free)
    if (size - std::min<size_t>(size, chosen.size()) >= per_gpu && ids.size() == per_gpu) take(ids);
  const std::vector<std::string>* best = nullptr;
  for (const auto& [gpu, ids] : free) {
    const bool fits =
        ids.size() + chosen.size() >= size && !is_chosen.contains(ids.empty() ? "" : ids[0]);
    if (fits && (best == nullptr || ids.size() < best->size())) best = &ids;
  }
  if (best != nullptr) take(*best);
  for (const auto& [gpu, ids] : free) take(ids);
  return chosen;
}

}  // namespace gpushare
