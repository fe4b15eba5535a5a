// SPDX-License-Identifier: Apache-2.0
#include "sched/control/placing.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr double kSecond = 1e9;

PlaneSnapshot with_gpus(uint32_t count) {
  PlaneSnapshot plane;
  for (uint32_t index = 0; index < count; ++index) {
    GpuRecord& gpu = plane.gpus.emplace_back();
    gpu.index = index;
  }
  return plane;
}

ProcessRecord& add(PlaneSnapshot& plane, uint32_t gpu, Nanos gpu_time) {
  ProcessRecord& record = plane.processes.emplace_back().record;
  record.gpu = gpu;
  record.gpu_time_ns = static_cast<uint64_t>(gpu_time.count());
  return record;
}

TEST(Placing, AProcessWithoutAJobIsAJobOfUnknownLength) {
  PlaneSnapshot plane = with_gpus(2);
  add(plane, 1, 3s);
  add(plane, 1, 4s);
  const auto gpus = place_gpus(plane, LengthMix());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].waiting, 0);
  EXPECT_EQ(gpus[1].waiting, LengthMix().index(3s) + LengthMix().index(4s));
}

TEST(Placing, WhatIsLeftOfAJobCountsAndNotWhatItHasReceived) {
  PlaneSnapshot plane = with_gpus(1);
  ProcessRecord& record = add(plane, 0, 60s);
  record.job = 5;
  record.job_service_ns = 60'000'000'000;
  record.job_left_us = 2'000'000;
  EXPECT_EQ(place_gpus(plane, LengthMix())[0].waiting, 2 * kSecond);
  record.job_left_us = 0;
  EXPECT_EQ(place_gpus(plane, LengthMix())[0].waiting, 0);
}

// It has received on each of them a part of all that it has received.
TEST(Placing, SeveralProcessesOfAJobCountOnceOnEachOfItsGpus) {
  PlaneSnapshot plane = with_gpus(2);
  for (const uint32_t gpu : {0U, 0U, 1U}) {
    ProcessRecord& record = add(plane, gpu, 1s);
    record.job = 5;
    record.job_service_ns = 3'000'000'000;
  }
  for (const PlaceGpu& gpu : place_gpus(plane, LengthMix()))
    EXPECT_EQ(gpu.waiting, LengthMix().index(1500ms)) << gpu.index;
  for (auto& process : plane.processes) process.record.job_left_us = 9'000'000;
  for (const PlaceGpu& gpu : place_gpus(plane, LengthMix()))
    EXPECT_EQ(gpu.waiting, 9 * kSecond) << gpu.index;
}

TEST(Placing, MemoryIsFreeThatNobodyUsesAndUnknownMemoryFitsEverything) {
  PlaneSnapshot plane = with_gpus(2);
  plane.gpus[0].memory_bytes = 100;
  plane.gpus[0].memory_used_bytes = 120;
  plane.gpus[1].memory_bytes = kUnknown64;
  const auto gpus = place_gpus(plane, LengthMix());
  EXPECT_EQ(gpus[0].free_bytes, 0U);
  EXPECT_EQ(gpus[1].free_bytes, UINT64_MAX);
}

}  // namespace
}  // namespace gpushare
