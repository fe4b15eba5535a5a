// SPDX-License-Identifier: Apache-2.0
#include "tools/base/format.h"

#include <gtest/gtest.h>

#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

TEST(Format, UnknownIsNeverZero) {
  EXPECT_EQ(percent_text(kUnknown32), "?");
  EXPECT_EQ(bytes_text(kUnknown64), "?");
  EXPECT_EQ(micros_text(kUnknown32), "?");
  EXPECT_EQ(count_text(kUnknown32), "?");
  EXPECT_EQ(percent_text(0), "0.0%");
  EXPECT_EQ(count_text(0), "0");
}

TEST(Format, NumbersKeepThreeDigits) {
  EXPECT_EQ(percent_text(298), "29.8%");
  EXPECT_EQ(percent_text(1000), "100.0%");
  EXPECT_EQ(bytes_text(0), "0B");
  EXPECT_EQ(bytes_text(1023), "1023B");
  EXPECT_EQ(bytes_text(1536), "1.5K");
  EXPECT_EQ(bytes_text(uint64_t{141} << 30), "141G");
  EXPECT_EQ(bytes_text((uint64_t{1} << 30) - 1), "1.0G");
  EXPECT_EQ(bytes_text(kUnknown64 - 1), "16E");
  EXPECT_EQ(micros_text(1), "1us");
  EXPECT_EQ(micros_text(2048), "2.0ms");
  EXPECT_EQ(micros_text(1'500'000), "1.5s");
  EXPECT_EQ(tokens_text(-12'300'000), "-12.3ms");
  EXPECT_EQ(tokens_text(2'500'000'000), "2.5s");
}

TEST(Format, BytesAreNeverWiderThanTheirColumn) {
  for (int shift = 0; shift < 64; ++shift)
    for (uint64_t value :
         {(uint64_t{1} << shift) - 1, uint64_t{1} << shift, 3 * (uint64_t{1} << shift)})
      EXPECT_LE(bytes_text(value).size(), 5u) << value;
}

TEST(Format, Durations) {
  using namespace std::chrono;
  EXPECT_EQ(duration_text(milliseconds(350)), "350 ms");
  EXPECT_EQ(duration_text(seconds(12)), "12 s");
  EXPECT_EQ(duration_text(seconds(185)), "3 min 5 s");
  EXPECT_EQ(duration_text(seconds(7380)), "2 h 3 min");
  EXPECT_EQ(duration_text(seconds(90000)), "1 d 1 h");
}

TEST(Format, CapsAreShownAsTheyAreSet) {
  EXPECT_EQ(cap_text(kUnknown64, 100'000), "max");
  EXPECT_EQ(cap_text(30'000, 100'000), "30%");
  EXPECT_EQ(cap_text(12'500, 100'000), "12.5%");
  EXPECT_EQ(cap_text(5'000, 20'000), "5000/20000us");
}

TEST(Format, NamesCannotControlTheTerminal) {
  EXPECT_EQ(printable("a\033[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(printable("na\xc3\xafve", false), "na?ve");
  EXPECT_EQ(printable("na\xc3\xafve \u8a13\u7df4", true), "na\u00efve \u8a13\u7df4");
  EXPECT_EQ(printable("\u8a13\u7df4", false), "??");
  EXPECT_EQ(printable(std::string_view("abc\0def", 7)), "abc");
  // An 8-bit terminal obeys the second set of controls; others turn the direction of writing.
  for (const char* hostile : {"\xc2\x9b", "\u202e", "\u200b", "\u0301", "\xc3", "\xff", "\xe8\xa8"})
    EXPECT_EQ(printable(hostile, true), "?") << hostile;
  EXPECT_EQ(printable("\x9b\x9b", true), "??");
}

TEST(Format, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("\u8a13\u7df4 1"), 6u);
  EXPECT_EQ(clipped("\u8a13\u7df4\u8a13", 5), "\u8a13\u7df4~");
  EXPECT_EQ(clipped("\u8a13\u7df4\u8a13", 4), "\u8a13~");
  EXPECT_EQ(padded("\u8a13\u7df4\u8a13", 4, Align::kLeft), "\u8a13~ ");
}

TEST(Format, ClippingCountsCharactersAndMarksTheCut) {
  EXPECT_EQ(clipped("abcdef", 6), "abcdef");
  EXPECT_EQ(clipped("abcdef", 4), "abc~");
  EXPECT_EQ(clipped("▁▂▃▄", 3), "▁▂~");
  EXPECT_EQ(clipped("abc", 1), "~");
  EXPECT_EQ(clipped("abc", 0), "");
  EXPECT_EQ(padded("ab", 4, Align::kRight), "  ab");
  EXPECT_EQ(padded("▁", 3, Align::kLeft), "▁  ");
}

}  // namespace
}  // namespace gpushare
