// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace gpushare {
namespace {

using Ids = std::vector<std::string>;
const std::vector<SharedGpu> kTwo = {{"GPU-a", 0, 10ULL << 30}, {"GPU-b", 1, 0}};

TEST(KubernetesDevices, AreSharesAndUnitsOfMemory) {
  EXPECT_EQ(share_ids(kTwo, 2), (Ids{"GPU-a.0", "GPU-a.1", "GPU-b.0", "GPU-b.1"}));
  EXPECT_EQ(memory_ids(kTwo, 4ULL << 30), (Ids{"GPU-a.0", "GPU-a.1"}));
  EXPECT_EQ(gpus_of(share_ids(kTwo, 3)), (Ids{"GPU-a", "GPU-b"}));
  const std::vector<SharedGpu> huge = {{"x", 0, ~0ULL}};
  EXPECT_EQ(memory_ids(huge, 1).size(), kMostDevices);
}

TEST(KubernetesDevices, FilesArePassedWhetherOrNotTheyAreSeenHere) {
  EXPECT_EQ(device_files(kTwo, Ids{"GPU-b"}),
            (Ids{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"}));
}

TEST(KubernetesDevices, SharesAreOfOneGpuOrWholeGpus) {
  EXPECT_TRUE(check_shares(Ids{"a.0", "a.7"}, 10));
  EXPECT_TRUE(check_shares(share_ids(kTwo, 10), 10));
  EXPECT_TRUE(check_shares(Ids{}, 10));
  const auto refused = check_shares(Ids{"a.0", "b.0"}, 10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::invalid_argument);
  EXPECT_NE(refused.error().detail.find("allowed: up to 10 shares of one GPU"), std::string::npos);
}

TEST(KubernetesDevices, WhereLeastIsLeftOverIsPreferred) {
  const Ids available = {"a.0", "a.1", "a.2", "a.3", "b.0", "b.1", "c.0", "c.1", "c.2"};
  EXPECT_EQ(preferred_shares(available, {}, 2, 4), (Ids{"b.0", "b.1"}));
  EXPECT_EQ(preferred_shares(available, {}, 3, 4), (Ids{"c.0", "c.1", "c.2"}));
  EXPECT_EQ(preferred_shares(available, {}, 4, 4), (Ids{"a.0", "a.1", "a.2", "a.3"}));
  EXPECT_EQ(preferred_shares(available, Ids{"c.0"}, 2, 4), (Ids{"c.0", "c.1"}));
}

// Whatever is free, the kubelet gets as many as it asked for, from what it named, and where they
// fit on one GPU, or on whole ones, they are there.
TEST(KubernetesDevices, WhatIsPreferredFitsWheneverSomethingDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t per_gpu = 1 + random() % 6;
    Ids available;
    std::map<std::string, uint32_t> free;
    for (uint32_t gpu = 0; gpu < 4; ++gpu)
      for (uint32_t n = 0; n < per_gpu; ++n)
        if (random() % 3 != 0) {
          available.push_back("g" + std::to_string(gpu) + "." + std::to_string(n));
          ++free[gpu_of(available.back())];
        }
    if (available.empty()) continue;
    std::ranges::shuffle(available, random);
    const auto size = static_cast<uint32_t>(1 + random() % available.size());
    const Ids chosen = preferred_shares(available, {}, size, per_gpu);
    ASSERT_EQ(chosen.size(), size);
    ASSERT_EQ(std::set<std::string>(chosen.begin(), chosen.end()).size(), size);
    for (const std::string& id : chosen)
      ASSERT_TRUE((std::ranges::find(available, id) != available.end())) << id;
    const auto whole = static_cast<uint32_t>(
        std::ranges::count_if(free, [&](const auto& gpu) { return gpu.second == per_gpu; }));
    const bool fits_one =
        std::ranges::any_of(free, [&](const auto& gpu) { return gpu.second >= size; });
    if (fits_one || (size % per_gpu == 0 && whole * per_gpu >= size))
      ASSERT_TRUE(check_shares(chosen, per_gpu)) << "round " << round;
  }
}

}  // namespace
}  // namespace gpushare
