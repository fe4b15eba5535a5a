// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/output.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr char kLines[] =
    "{\"t_ns\":1000000,\"turns\":0}\n{\"t_ns\":2000000,\"turns\":100}\n"
    "{\"t_ns\":3000000,\"turns\":100}\n{\"t_ns\":4000000,\"turns\":300}\n";

TEST(WorkloadOutput, RateIsInterpolatedBetweenReports) {
  EXPECT_DOUBLE_EQ(rate_between(kLines, "turns", Time{1500us}, Time{3500us}), 75);
}

TEST(WorkloadOutput, StandingStillIsNoProgress) {
  EXPECT_EQ(first_progress(kLines, "turns", Time{2000us}), Time{4000us});
  EXPECT_EQ(first_progress(kLines, "turns", Time{3500us}), std::nullopt);
}

TEST(WorkloadOutput, ReadsMembersOfALine) {
  EXPECT_EQ(number_in(R"({"a":"x","b":2.5})", "b"), 2.5);
  EXPECT_EQ(number_in(R"({"a":"x"})", "a"), std::nullopt);
  EXPECT_EQ(text_in(R"({"a":"x","b":2.5})", "a"), "x");
}

}  // namespace
}  // namespace gpushare
