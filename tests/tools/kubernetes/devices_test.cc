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

// The agent lists a GPU that it has not opened without a UUID and without memory.
TEST(KubernetesDevices, NoGpuIsSharedUnderAnInventedName) {
  const SharedGpu a{"GPU-a", 0, 10}, b{"GPU-b", 1, 20}, none{"", 0, 0}, another{"", 1, 0};
  const SharedGpu closed_a{"GPU-a", 0, 10, false}, closed_b{"GPU-b", 1, 20, false};
  const SharedGpu moved_b{"GPU-b", 0, 20}, c{"GPU-c", 1, 30};
  struct Listed {
    const char* about;
    std::vector<SharedGpu> before, seen, shared;
  };
  const Listed rows[] = {
      {"all are open", {}, {a, b}, {a, b}},
      {"one was never open", {}, {a, another}, {a}},
      {"none was ever open", {}, {none, another}, {}},
      {"one is not open again yet", {a, b}, {a, another}, {a, closed_b}},
      {"nor is it later", {a, closed_b}, {a, another}, {a, closed_b}},
      {"none is open again yet", {a, b}, {none, another}, {closed_a, closed_b}},
      {"it is open again", {a, closed_b}, {a, b}, {a, b}},
      {"it has another number now", {a, b}, {moved_b, another}, {moved_b}},
      {"another GPU is in its place", {a, b}, {a, c}, {a, c}},
  };
  for (const Listed& row : rows)
    EXPECT_EQ(gpus_to_share(row.before, row.seen), row.shared) << row.about;
}

TEST(KubernetesDevices, AreHealthyWhileTheirGpuIsOpen) {
  using Devices = std::vector<KubeletDevice>;
  const std::vector<SharedGpu> gpus = {{"GPU-a", 0, 10}, {"GPU-b", 1, 20, false}};
  const Ids ids = share_ids(gpus, 1);
  EXPECT_EQ(devices_of(ids, gpus, true), (Devices{{"GPU-a.0", true}, {"GPU-b.0", false}}));
  EXPECT_EQ(devices_of(ids, gpus, false), (Devices{{"GPU-a.0", false}, {"GPU-b.0", false}}));
}

TEST(KubernetesDevices, MemoryThatIsNotKnownIsNotTheSmallest) {
  EXPECT_EQ(smallest_memory(kTwo), 10ULL << 30);
  EXPECT_EQ(smallest_memory(std::vector<SharedGpu>{{"a", 0, 9}, {"b", 1, 7}, {"c", 2, 8}}), 7U);
  EXPECT_EQ(smallest_memory(std::vector<SharedGpu>{{"a", 0, 0}}), 0U);
  EXPECT_EQ(smallest_memory({}), 0U);
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
