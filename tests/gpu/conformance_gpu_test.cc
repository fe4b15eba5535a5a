// SPDX-License-Identifier: Apache-2.0
// Runs the scenes of tests/conformance on a real GPU, without and with the shim. The real driver
// decides whether expected.h, and with it the stand-in libcuda, is right. Some of the expected
// lines hold for an H200 only.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

namespace fs = std::filesystem;

class ConformanceOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none))
      gpus_.push_back({entry.path().filename(), 0});
    if (gpus_.empty()) GTEST_SKIP() << "no GPU of the NVIDIA driver";
  }

  static std::unique_ptr<Child> start(const char* times, const ShimRig* rig) {
    std::vector<std::string> environment;
    for (const char* name : {"LD_LIBRARY_PATH", "HOME", "CUDA_VISIBLE_DEVICES"})
      if (const char* value = std::getenv(name))
        environment.push_back(std::string(name) + "=" + value);
    if (rig != nullptr) {
      environment.push_back("LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so");
      environment.push_back("GPUSHARE_SHIM_SOCKET=" + rig->socket());
    }
    return started({build_folder() + "/bin/workloads/conformance", "--repeat", times}, environment);
  }
  static void expect_right(const Outcome& outcome) { EXPECT_EQ(outcome.status, 0) << outcome.err; }

  std::vector<ShimRequest::Gpu> gpus_;
};

TEST_F(ConformanceOnAGpu, TheDriverSaysWhatIsExpected) {
  expect_right(outcome_of(*start("3", nullptr)));
}

TEST_F(ConformanceOnAGpu, InTheWholeGpu) {
  ShimRig rig(kShimFeatures, gpus_);
  expect_right(outcome_of(*start("1", &rig)));
}

TEST_F(ConformanceOnAGpu, InAPartition) {
  for (auto& gpu : gpus_) gpu.groups = 0b110;
  ShimRig rig(kShimPartitions, gpus_);
  expect_right(outcome_of(*start("1", &rig)));
}

TEST_F(ConformanceOnAGpu, UnderRandomMoves) {
  ShimRig rig(kShimFeatures, gpus_);
  std::mt19937 random(1);
  const auto program = start("10", &rig);
  while (!program->has_ended()) {
    const uint64_t groups = random() % 14;
    rig.with_all_slots([&](ShimSlot& slot) { slot.gpus[0].wanted.store(groups); });
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  expect_right(outcome_of(*program));
}

}  // namespace
}  // namespace gpushare::test
