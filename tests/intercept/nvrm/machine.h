// SPDX-License-Identifier: Apache-2.0
// Machines and programs that the tests of nvrm/ share.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "intercept/nvrm/client.h"
#include "tests/intercept/nvrm/fake_rm.h"

namespace gpushare::nvrm {

// Two GPUs whose instances run against their minors, as on the machine where it was seen.
inline void add_two_gpus(FakeRm& rm) {
  rm.add_gpu({.minor = 0,
              .gpu_id = 0x1B00,
              .instance = 1,
              .name = "NVIDIA H200",
              .uuid = "GPU-11111111-aaaa",
              .pci_bus = 0x1B,
              .memory_kib = 1024,
              .sm_count = 132});
  rm.add_gpu({.minor = 1,
              .gpu_id = 0x4300,
              .instance = 0,
              .name = "NVIDIA H200",
              .uuid = "GPU-22222222-bbbb",
              .pci_bus = 0x43,
              .memory_kib = 2048,
              .sm_count = 64});
}

// The machine with our client open in it.
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
