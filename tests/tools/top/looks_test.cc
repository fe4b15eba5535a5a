// SPDX-License-Identifier: Apache-2.0
#include "tools/top/looks.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

TEST(TopLooks, AChangeIsLookedForUntilTheAgentShowsIt) {
  Looks looks(1s);
  EXPECT_EQ(looks.next(), Time{});
  Time now = Time{} + 10s;
  looks.looked(now);
  EXPECT_EQ(looks.next(), now + 1s);
  looks.changed(now += 300ms);
  EXPECT_EQ(looks.next(), now);
  int looked = 0;
  for (const Time end = now + 1500ms; looks.next() < end; ++looked) looks.looked(looks.next());
  EXPECT_EQ(looked, 11) << "ten in a second, and then one in each";
}

TEST(TopLooks, WhoLooksOftenLooksNoLessOften) {
  Looks looks(50ms);
  looks.changed(Time{} + 1s);
  looks.looked(Time{} + 1s);
  EXPECT_EQ(looks.next(), Time{} + 1050ms);
}

}  // namespace
}  // namespace gpushare
