// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/widening.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// One process that waits for a kernel which needs 132 SMs at once, in a partition of 16.
Widening::Seen stuck(pid_t pid = 100, std::string_view program = "program") {
  return {.process = {pid, 1},
          .program = program,
          .launches = 7,
          .waits = true,
          .at_once_sms = 132,
          .has_sms = 16};
}

class WideningTest : public testing::Test {
 protected:
  std::vector<Widening::Found> look(Nanos after, const Widening::Seen& seen) {
    now_ += after;
    return widening_.step(now_, std::vector{seen});
  }
  // Looks as often as the agent does. Returns what was found.
  std::vector<Widening::Found> watch(Nanos length, const Widening::Seen& seen) {
    std::vector<Widening::Found> found;
    for (Nanos left = length; left > 0ns; left -= 100ms)
      for (const Widening::Found& one : look(std::min<Nanos>(left, 100ms), seen))
        found.push_back(one);
    return found;
  }
  uint32_t least(pid_t pid = 100) const { return widening_.needs({pid, 1}).stuck_sms; }
  uint32_t wished(pid_t pid = 100) const { return widening_.needs({pid, 1}).refused_sms; }
  std::string note(pid_t pid = 100) const { return widening_.note({pid, 1}); }

  Widening widening_;
  Time now_{1s};
};

TEST_F(WideningTest, AKernelThatDoesNotEndIsNoticedOnce) {
  EXPECT_TRUE(look(0s, stuck()).empty());
  EXPECT_TRUE(watch(Widening::kPatience - 1ms, stuck()).empty());
  const auto found = look(1ms, stuck());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].is_stuck);
  EXPECT_EQ(found[0].sms, 132u);
  EXPECT_EQ(found[0].has_sms, 16u);
  EXPECT_EQ(least(), 132u);
  EXPECT_NE(note().find("132 SMs"), std::string::npos);
  EXPECT_TRUE(watch(1min, stuck()).empty());
}

// The agent stood still, or the machine with the kernel that was waited for.
TEST_F(WideningTest, APauseIsNoKernelThatDoesNotEnd) {
  EXPECT_TRUE(look(0s, stuck()).empty());
  EXPECT_TRUE(look(60s, stuck()).empty());
  EXPECT_TRUE(watch(Widening::kPatience - 1100ms, stuck()).empty());
  EXPECT_EQ(least(), 0u);
  EXPECT_EQ(watch(200ms, stuck()).size(), 1u) << "the kernel does not end after it, either";
}

TEST_F(WideningTest, WhoGetsOnOrIsHeldOrFitsIsLeftAlone) {
  struct Row {
    const char* what;
    Widening::Seen seen;
    uint64_t launches;  // between two looks
  };
  Widening::Seen held = stuck(), fits = stuck(), done = stuck();
  held.waits = false;
  fits.at_once_sms = 16;
  done.at_once_sms = 0;
  for (Row row : {Row{"it launches", stuck(), 1}, Row{"nobody waits, or it is held", held, 0},
                  Row{"it fits", fits, 0}, Row{"nothing may be running", done, 0}}) {
    for (int i = 0; i < 200; ++i, row.seen.launches += row.launches)
      EXPECT_TRUE(look(100ms, row.seen).empty()) << row.what;
    EXPECT_EQ(least(), 0u) << row.what;
    EXPECT_EQ(note(), "") << row.what;
  }
}

TEST_F(WideningTest, WhatTheDriverHasRefusedIsAWishAtOnce) {
  Widening::Seen seen = stuck();
  seen.refused_sms = 40;
  seen.at_once_sms = 0;
  const auto found = look(0s, seen);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].is_stuck);
  EXPECT_EQ(wished(), 40u);
  EXPECT_NE(note().find("runs in the whole GPU"), std::string::npos);
  EXPECT_TRUE(look(0s, seen).empty()) << "it is known";
  seen.refused_sms = 50;
  EXPECT_EQ(look(0s, seen).size(), 1u) << "a larger one";
  EXPECT_EQ(wished(), 50u);
  EXPECT_EQ(least(), 0u) << "it has run in the whole GPU";
}

TEST_F(WideningTest, TheNextProcessOfTheCommandIsWideFromItsBegin) {
  look(0s, stuck(100));
  watch(Widening::kPatience, stuck(100));
  EXPECT_TRUE(look(0s, stuck(101)).empty()) << "it is known";
  EXPECT_EQ(least(101), 132u);
  EXPECT_EQ(note(101).find("start it again"), std::string::npos) << "nothing is wrong with it";
  look(0s, stuck(102, "another"));
  EXPECT_EQ(least(102), 0u);
  look(0s, stuck(103, ""));
  watch(Widening::kPatience, stuck(103, ""));
  EXPECT_EQ(least(103), 132u);
  look(0s, stuck(104, ""));
  EXPECT_EQ(least(104), 0u) << "nothing is learnt of a command without a name";
}

TEST_F(WideningTest, OneThatGotOnAfterAllIsNoLongerSaidToBeStuck) {
  look(0s, stuck());
  watch(Widening::kPatience, stuck());
  Widening::Seen later = stuck();
  later.launches = 8;
  later.at_once_sms = 0;
  look(1s, later);
  EXPECT_EQ(note().find("does not end"), std::string::npos);
  EXPECT_EQ(least(), 132u) << "its partition stays";
}

}  // namespace
}  // namespace gpushare
