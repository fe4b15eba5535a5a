// SPDX-License-Identifier: Apache-2.0
// Compares our declarations of the resource manager's ABI with the recorded numbers of NVIDIA's
// headers, and those numbers with the headers themselves where there is a checkout.
#include "tests/intercept/nvrm/abi/abi.h"

#include <gtest/gtest.h>

#include "intercept/nvrm/abi.h"

namespace gpushare {

void PrintTo(const AbiRow& row, std::ostream* out) {
  *out << row.what << ": " << row.value << ", " << row.bytes << " bytes";
}

std::vector<AbiRow> recorded_nvrm_abi() {
  return {
#define GS_CONSTANT(ours, theirs, value) {#ours " is " #theirs, value, 0},
#define GS_SIZE(ours, theirs, size) {"size of " #ours " is " #theirs, size, 0},
#define GS_FIELD(ours, member, theirs, their_member, offset, size) \
  {#ours "." #member " is " #theirs "." #their_member, offset, size},
#include "tests/intercept/nvrm/abi/table.inc"
  };
}

namespace {

void expect_same(const std::vector<AbiRow>& got, const std::vector<AbiRow>& recorded) {
  ASSERT_EQ(got.size(), recorded.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], recorded[i]);
}

TEST(NvrmAbi, OursHasTheRecordedNumbers) {
  EXPECT_GT(recorded_nvrm_abi().size(), 300u);
  expect_same(our_nvrm_abi(), recorded_nvrm_abi());
}

TEST(NvrmAbi, TheDriversHeadersHaveTheRecordedNumbers) {
  const std::vector<AbiRow> real = real_nvrm_abi();
  if (real.empty())
    GTEST_SKIP() << "no checkout of open-gpu-kernel-modules in $OGKM_DIR at build time";
  expect_same(real, recorded_nvrm_abi());
}

// Before 580 the list of GPUs had two arrays; the client then passes the part before `flags`.
TEST(NvrmAbi, ShortFormOfProbedIdsIsItsFirstTwoArrays) {
  EXPECT_EQ(offsetof(gs_probed_ids, flags), sizeof(gs_u32) * 2 * GS_MAX_GPUS);
}

}  // namespace
}  // namespace gpushare
