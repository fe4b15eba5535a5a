// SPDX-License-Identifier: Apache-2.0
// The layouts that /dev/gpushare promises. The agent and the module may be of different builds, and
// must agree on them.
#include "kmod/uapi/gpushare.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace gpushare {
namespace {

struct Layout {
  const char* description;
  size_t is, was;
};

TEST(KmodUapi, SizesAreThoseOfVersion5) {
  static_assert(GPUSHARE_UAPI_VERSION == 5);
  for (const Layout& row : {Layout{"query", sizeof(gpushare_query), 96},
                            {"register", sizeof(gpushare_register), 8},
                            {"replay", sizeof(gpushare_replay), 8},
                            {"pressure", sizeof(gpushare_pressure), 24},
                            {"usage", sizeof(gpushare_usage), 432},
                            {"publish", sizeof(gpushare_publish), 24},
                            {"gpu", sizeof(gpushare_gpu), 104},
                            {"policy", sizeof(gpushare_policy), 24},
                            {"producer", sizeof(gpushare_producer), 32},
                            {"consumer", sizeof(gpushare_consumer), 8},
                            {"event", sizeof(gpushare_event), 128}})
    EXPECT_EQ(row.is, row.was) << row.description;
}

TEST(KmodUapi, EveryKindOfEventHasTheSameRoom) {
  EXPECT_EQ(offsetof(gpushare_event, opened), 32u);
  for (const size_t bytes :
       {sizeof(gpushare_event_opened), sizeof(gpushare_event_moved), sizeof(gpushare_event_object),
        sizeof(gpushare_event_control), sizeof(gpushare_event_memory_refused),
        sizeof(gpushare_event_settings)})
    EXPECT_EQ(bytes, 96u);
}

TEST(KmodUapi, NumbersOfTheIoctlsStand) {
  EXPECT_EQ(GPUSHARE_IOC_QUERY, 0xC060B700u);
  EXPECT_EQ(GPUSHARE_IOC_REGISTER, 0x4008B701u);
  EXPECT_EQ(GPUSHARE_IOC_REPLAY, 0x4008B702u);
  EXPECT_EQ(GPUSHARE_IOC_PUBLISH, 0x4018B703u);
  EXPECT_EQ(GPUSHARE_IOC_SET_GPU, 0x4068B704u);
  EXPECT_EQ(GPUSHARE_IOC_SET_POLICY, 0x4018B705u);
}

}  // namespace
}  // namespace gpushare
