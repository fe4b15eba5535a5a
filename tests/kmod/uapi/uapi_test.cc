// SPDX-License-Identifier: Apache-2.0
// The layouts that /dev/gpushare promises. The agent and the module may be of different builds, and
// must agree on them.
#include "kmod/uapi/gpushare.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace gpushare {
namespace {

TEST(KmodUapi, SizesAreThoseOfVersion2) {
  static_assert(GPUSHARE_UAPI_VERSION == 2);
  EXPECT_EQ(sizeof(gpushare_query), 96u);
  EXPECT_EQ(sizeof(gpushare_register), 8u);
  EXPECT_EQ(sizeof(gpushare_replay), 8u);
  EXPECT_EQ(sizeof(gpushare_pressure), 24u);
  EXPECT_EQ(sizeof(gpushare_usage), 416u);
  EXPECT_EQ(sizeof(gpushare_publish), 24u);
  EXPECT_EQ(sizeof(gpushare_gpu), 88u);
  EXPECT_EQ(sizeof(gpushare_policy), 24u);
  EXPECT_EQ(sizeof(gpushare_producer), 32u);
  EXPECT_EQ(sizeof(gpushare_consumer), 8u);
  EXPECT_EQ(sizeof(gpushare_event), 128u);
}

TEST(KmodUapi, EveryKindOfEventHasTheSameRoom) {
  EXPECT_EQ(offsetof(gpushare_event, opened), 32u);
  EXPECT_EQ(sizeof(gpushare_event_opened), 96u);
  EXPECT_EQ(sizeof(gpushare_event_moved), 96u);
  EXPECT_EQ(sizeof(gpushare_event_object), 96u);
  EXPECT_EQ(sizeof(gpushare_event_control), 96u);
  EXPECT_EQ(sizeof(gpushare_event_memory_refused), 96u);
  EXPECT_EQ(sizeof(gpushare_event_settings), 96u);
}

TEST(KmodUapi, NumbersOfTheIoctlsStand) {
  EXPECT_EQ(GPUSHARE_IOC_QUERY, 0xC060B700u);
  EXPECT_EQ(GPUSHARE_IOC_REGISTER, 0x4008B701u);
  EXPECT_EQ(GPUSHARE_IOC_REPLAY, 0x4008B702u);
  EXPECT_EQ(GPUSHARE_IOC_PUBLISH, 0x4018B703u);
  EXPECT_EQ(GPUSHARE_IOC_SET_GPU, 0x4058B704u);
  EXPECT_EQ(GPUSHARE_IOC_SET_POLICY, 0x4018B705u);
}

}  // namespace
}  // namespace gpushare
