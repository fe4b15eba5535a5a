// SPDX-License-Identifier: Apache-2.0
// Which MPS server the driver finds in the environment when it is initialised. One thread.
#include <gtest/gtest.h>

#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

constexpr const char* kPipe = "/run/gpushare-test/mps";

std::string seen(const ShimRig& rig, const std::string& program, const std::string& way,
                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> environment = rig.environment();
  environment.insert(environment.end(), more.begin(), more.end());
  const Outcome outcome =
      success_of(*started({build_folder() + "/bin/tests/" + program, way, "1"}, environment));
  return outcome.out;
}

const std::string kTold = std::string(kPipe) + "\n";

TEST(Mps, TheDriverFindsTheServerWhicheverWayItIsReached) {
  ShimRig rig(kShimGate);
  rig.mps_pipe = kPipe;
  EXPECT_EQ(seen(rig, "shim_probe", "init"), kTold);
  EXPECT_EQ(seen(rig, "shim_probe_linked", "init"), kTold);
  EXPECT_EQ(seen(rig, "shim_probe_linked", "init-direct"), kTold);
}

TEST(Mps, OnlyWhoIsTold) {
  ShimRig rig(kShimGate);
  EXPECT_EQ(seen(rig, "shim_probe", "init"), "none\n");
  EXPECT_EQ(seen(rig, "shim_probe_linked", "init-direct"), "none\n");
  rig.mps_pipe = kPipe;
  rig.die();
  EXPECT_EQ(seen(rig, "shim_probe", "init"), "none\n");
}

TEST(Mps, WhatTheProgramHasChosenStays) {
  ShimRig rig(kShimGate);
  rig.mps_pipe = kPipe;
  EXPECT_EQ(seen(rig, "shim_probe", "init", {"CUDA_MPS_PIPE_DIRECTORY=/its/own"}), "/its/own\n");
  EXPECT_EQ(seen(rig, "shim_probe", "init", {"CUDA_MPS_PIPE_DIRECTORY="}), "\n");
}

TEST(Mps, AChildIsToldAnewAndInheritsWhereNobodyTells) {
  ShimRig rig(kShimGate), of_others(kShimGate), declines(0);
  rig.mps_pipe = kPipe;
  const std::string other = "OTHER_SOCKET=";
  EXPECT_EQ(seen(rig, "shim_probe", "init-child"), kTold + kTold);
  EXPECT_EQ(seen(rig, "shim_probe", "init-child", {other + of_others.socket()}), kTold + "none\n");
  EXPECT_EQ(seen(rig, "shim_probe", "init-child", {other + declines.socket()}), kTold + "none\n");
  EXPECT_EQ(seen(rig, "shim_probe", "init-child", {other + "/nobody"}), kTold + kTold);
}

}  // namespace
}  // namespace gpushare::test
