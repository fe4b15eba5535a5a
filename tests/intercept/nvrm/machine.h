// SPDX-License-Identifier: Apache-2.0
// The machine that the tests of nvrm/ share.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "intercept/nvrm/client.h"
#include "tests/intercept/nvrm/fake_rm.h"

namespace gpushare::nvrm {

constexpr ProcessId kProgram{500, 77};
constexpr uint32_t kFirstObject = 0x5C000001;  // the first handle that CUDA gives an object

// Two GPUs whose instances are in the opposite order of their minors, as was seen on a machine.
inline void add_two_gpus(FakeRm& rm) {
  // clang-format off
  //          minor  gpu_id inst. name           uuid                 bus   KiB   SMs
  rm.add_gpu({0, 0x1B00, 1, "NVIDIA H200", "GPU-11111111-aaaa", 0x1B, 1024, 132});
  rm.add_gpu({1, 0x4300, 0, "NVIDIA H200", "GPU-22222222-bbbb", 0x43, 2048, 64});
  // clang-format on
}

// A test with that machine and an open client.
class NvrmTest : public testing::Test {
 protected:
  void SetUp() override {
    add_two_gpus(rm_);
    auto made = RmClient::open(rm_);
    ASSERT_TRUE(made) << made.error().message();
    client_ = std::move(*made);
    rm_.calls.clear();
  }
  RmClient& client() { return *client_; }

  FakeRm rm_;

 private:
  std::optional<RmClient> client_;
};

}  // namespace gpushare::nvrm
