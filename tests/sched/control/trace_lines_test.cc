// SPDX-License-Identifier: Apache-2.0
#include "sched/control/trace_lines.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

TEST(TraceLines, AreTheDocumentedJson) {
  EXPECT_EQ(trace_line(SwitchRecord{Time(5ns), 1, 42, 0, true}),
            R"({"switch":{"t":5,"gpu":1,"pid":42,"start":true}})");
  EXPECT_EQ(trace_end_line(3), R"({"end":true,"lost":3})");
  using Kind = Enforcer::Change::Kind;
  const struct {
    Kind kind;
    Micros slice;
    FreezeReason reason;
    const char* line;
  } rows[] = {
      {Kind::kFreeze, 0us, FreezeReason::kCap,
       R"({"event":{"t":5,"kind":"freeze","pid":42,"gpu":0,"reason":"cap"}})"},
      {Kind::kThaw, 0us, FreezeReason::kNone,
       R"({"event":{"t":5,"kind":"thaw","pid":42,"gpu":0}})"},
      {Kind::kSlice, 900us, FreezeReason::kNone,
       R"({"event":{"t":5,"kind":"slice","pid":42,"gpu":0,"value":900}})"},
  };
  for (const auto& [kind, slice, reason, line] : rows)
    EXPECT_EQ(trace_line({kind, Time(5ns), {42, 1}, 0, slice}, reason), line);
}

}  // namespace
}  // namespace gpushare
