// SPDX-License-Identifier: Apache-2.0
// Compares our declarations of the CUDA driver API with NVIDIA's header.
#include "tests/intercept/cuda/cuda_abi.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpushare {
namespace {

class CudaAbiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (real_.signatures.empty())
      GTEST_SKIP() << "no cuda.h in $CUDA_HOME/include or /usr/local/cuda/include at build time";
  }

  const CudaAbi ours_ = our_cuda_abi();
  const CudaAbi real_ = real_cuda_abi();
};

TEST_F(CudaAbiTest, ConstantsSizesAndOffsetsAreThoseOfCudaH) {
  EXPECT_GT(real_.numbers.size(), 100u);
  for (const auto& [name, value] : real_.numbers) {
    ASSERT_TRUE(ours_.numbers.contains(name)) << name;
    EXPECT_EQ(ours_.numbers.at(name), value) << name;
  }
}

// An enum of ours may be an integer of theirs, and the other way round: both use the same register.
std::string without_enums(std::string signature) {
  std::ranges::replace(signature, 'e', 'u');
  return signature;
}

TEST_F(CudaAbiTest, FunctionsTakeWhatThoseOfCudaHTake) {
  EXPECT_GT(real_.signatures.size(), 60u);
  for (const auto& [name, signature] : real_.signatures) {
    ASSERT_TRUE(ours_.signatures.contains(name)) << name;
    EXPECT_EQ(without_enums(ours_.signatures.at(name)), without_enums(signature)) << name;
  }
}

}  // namespace
}  // namespace gpushare
