// SPDX-License-Identifier: Apache-2.0
#include "shmctl/settings/tenant_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ranges>
#include <string>
#include <string_view>

#include "shmctl/program/nearest.h"

namespace gpushare {
namespace {

using testing::HasSubstr;

struct Row {
  const char* key;
  const char* text;
};
class AcceptedValue : public testing::TestWithParam<Row> {};  // values, with commas between them
class RejectedValue : public testing::TestWithParam<Row> {};  // one value

// Behind an arrow stands what it reads as where that differs.

TEST_P(AcceptedValue, IsSetAndFormattedSoThatItReadsBack) {
  const auto& [key, values] = GetParam();
  for (const auto part : std::views::split(std::string_view(values), std::string_view(", "))) {
    const std::string_view row(part.begin(), part.end());
    const size_t arrow = row.find(" -> ");
    const std::string_view value = row.substr(0, arrow);
    SCOPED_TRACE(value);
    TenantSettings settings;
    const auto applied = apply_setting(settings, key, value);
    ASSERT_TRUE(applied.has_value()) << applied.error().message();
    EXPECT_EQ(format_setting(settings, key), arrow == row.npos ? value : row.substr(arrow + 4));
    TenantSettings again;
    ASSERT_TRUE(apply_setting(again, key, format_setting(settings, key)).has_value());
    EXPECT_EQ(again, settings);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Values, AcceptedValue,
    testing::Values(Row{"weight", "1, 10000, 0300 -> 300"},
                    Row{"max",
                        "max, 30%, 1%, 100%, 12.5%, 33.333%, 1.050% -> 1.05%, 30000 100000 -> 30%, "
                        "30000   100000 -> 30%, 1000 1000, 1000 1000000, 1000000 1000000"},
                    Row{"priority", "idle, normal, high"},
                    Row{"memory_max",
                        "max, 1, 1023, 8G, 8g -> 8G, 12GiB -> 12G, 64kiB -> 64K, 1.5G -> 1536M, "
                        "0.125MiB -> 128K, 0.001K -> 1, 1024K -> 1M, 1536M, 16777215T, "
                        "18446744073709551614"},
                    Row{"sm_percent", "1, 100, max"},
                    Row{"slo_us",
                        "0, 5ms -> 5000, 0.25ms -> 250, 200us -> 200, 1.5s -> 1500000, "
                        "1000s -> 1000000000, 1000000000"},
                    Row{"length_us",
                        "0, 10m -> 600000000, 1.5h -> 5400000000, 90s -> 90000000, "
                        "277h -> 997200000000, 1000000000000"},
                    Row{"iterations", "1000000000000"}, Row{"phase", "auto, prefill, decode, none"},
                    Row{"gang", "auto, true, false"}, Row{"sm_min", "0, 1, 100"},
                    Row{"sm_shown", "true, false"}));

TEST_P(RejectedValue, ChangesNothingAndTheErrorSaysWhatIsAllowed) {
  const auto& [key, value] = GetParam();
  const TenantSettings before{.weight = 7,
                              .priority = Priority::kHigh,
                              .cap = Cap{Micros(2'000), Micros(5'000)},
                              .memory_max = 4096,
                              .sm_percent = 50,
                              .slo = Micros(9)};
  TenantSettings settings = before;
  const auto applied = apply_setting(settings, key, value);
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(settings, before);
  EXPECT_EQ(applied.error().code, std::errc::invalid_argument);
  EXPECT_THAT(applied.error().detail, HasSubstr(key));
  EXPECT_THAT(applied.error().detail, HasSubstr("'" + std::string(value) + "'"));
  EXPECT_THAT(applied.error().detail, HasSubstr(std::string(allowed_values(key))));
}

// One row for each of the values.
template <class... Values>
std::vector<Row> rejected(const char* key, Values... values) {
  return {Row{key, values}...};
}

INSTANTIATE_TEST_SUITE_P(
    Weight, RejectedValue,
    testing::ValuesIn(rejected("weight", "", "0", "10001", "-1", "+1", " 1", "1 ", "1\n", "1.5",
                               "1e3", "0x10", "max", "\u0663", "\uff11", "4294967297",
                               "18446744073709551617", "99999999999999999999999999")));
INSTANTIATE_TEST_SUITE_P(
    Max, RejectedValue,
    testing::ValuesIn(rejected("max", "", "0%", "0.999%", "100.5%", "100.001%", "101%", "-30%",
                               "+30%", "30 %", " 30%", "30% ", "30%%", "%", ".5%", "30.%",
                               "30.0001%", "30.-1%", "30,5%", "30", "18446744073709551615%", "MAX",
                               "max 100000", "30000", "30000 ", " 30000 100000", "30000 100000 ",
                               "30000\t100000", "30000 100000 1", "999 100000", "100001 100000",
                               "500 999", "1000 1000001", "0 0", "-1 100000",
                               "18446744073709551616 18446744073709551616", "30\u00a0%",
                               "\u066330%")));
INSTANTIATE_TEST_SUITE_P(Priority, RejectedValue,
                         testing::ValuesIn(rejected("priority", "", "Idle", "idle ", "1",
                                                    "realtime")));
INSTANTIATE_TEST_SUITE_P(MemoryMax, RejectedValue,
                         testing::ValuesIn(rejected("memory_max", "", "0", "0G", "G", "-8G", "8GB",
                                                    "iB", "8iB", "8 G", "8 GiB", "1.5", "1.0005G",
                                                    "0.0G", ".5G", "8P", "16777216T", "16777216.0T",
                                                    "16777216TiB", "8gib", "18446744073709551615",
                                                    "18446744073709551616")));
INSTANTIATE_TEST_SUITE_P(SmPercent, RejectedValue,
                         testing::ValuesIn(rejected("sm_percent", "0", "101", "50%", "-1")));
INSTANTIATE_TEST_SUITE_P(SloUs, RejectedValue,
                         testing::ValuesIn(rejected("slo_us", "-1", "1000000001", "max", "", "1.5",
                                                    "0.0001ms", "1.5us", "5 ms", "ms", "1000.001s",
                                                    "1001s", "1m", "1000000000000s")));

TEST(TenantSettings, WhatIsAllowedNamesTheUnits) {
  EXPECT_THAT(std::string(allowed_values("slo_us")), HasSubstr("1000000000 us, or with a unit"));
  EXPECT_THAT(std::string(allowed_values("length_us")), HasSubstr("10m"));
}

TEST(TenantSettings, WhatIsMeantIsNamed) {
  const auto refusal = [](const char* key, const char* value) {
    TenantSettings settings;
    const auto applied = apply_setting(settings, key, value);
    return applied ? "" : applied.error().detail;
  };
  EXPECT_THAT(refusal("max", "30"), HasSubstr("; did you mean '30%'?"));
  EXPECT_THAT(refusal("memory_max", "8GB"), HasSubstr("; did you mean '8GiB'?"));
  EXPECT_THAT(refusal("memory_max", "8gib"), HasSubstr("; did you mean '8GiB'?"));
  EXPECT_THAT(refusal("max", "0.3"), HasSubstr("; did you mean '30%'?"));
  EXPECT_THAT(refusal("sm_percent", "50%"), HasSubstr("; did you mean '50'?"));
  for (const auto& [key, value] : {std::pair{"max", "30000"}, {"max", ""}, {"weight", "x"}})
    EXPECT_THAT(refusal(key, value), testing::Not(HasSubstr("did you mean"))) << key << value;
}

INSTANTIATE_TEST_SUITE_P(LengthUs, RejectedValue,
                         testing::ValuesIn(rejected("length_us", "-1", "1000000000001", "278h",
                                                    "10 m", "m", "-1m", "10d", "max", "")));
INSTANTIATE_TEST_SUITE_P(Iterations, RejectedValue,
                         testing::ValuesIn(rejected("iterations", "-1", "1000000000001", "1e6",
                                                    "")));

INSTANTIATE_TEST_SUITE_P(Gang, RejectedValue,
                         testing::ValuesIn(rejected("gang", "", "True", "yes", "1", "true ")));
INSTANTIATE_TEST_SUITE_P(SmMin, RejectedValue,
                         testing::ValuesIn(rejected("sm_min", "101", "50%", "-1", "max", "")));
INSTANTIATE_TEST_SUITE_P(SmShown, RejectedValue,
                         testing::ValuesIn(rejected("sm_shown", "", "True", "auto", "1")));
INSTANTIATE_TEST_SUITE_P(Phase, RejectedValue,
                         testing::ValuesIn(rejected("phase", "", "Decode", "decode ", "1",
                                                    "prefill,decode", "max")));

TEST(TenantSettings, AnUnknownKeyIsAnErrorWithASuggestion) {
  TenantSettings settings;
  auto applied = apply_setting(settings, "wieght", "1");
  ASSERT_FALSE(applied.has_value());
  EXPECT_THAT(applied.error().detail, HasSubstr("did you mean 'weight'?"));
  applied = apply_setting(settings, "colour", "1");
  ASSERT_FALSE(applied.has_value());
  EXPECT_THAT(applied.error().detail, HasSubstr("weight, max, priority"));
  EXPECT_EQ(settings, TenantSettings());
}

TEST(TenantSettings, SeveralAreAppliedAllOrNone) {
  TenantSettings settings;
  const std::vector<Setting> good = {{"weight", "5"}, {"max", "30%"}, {"weight", "6"}};
  ASSERT_TRUE(apply_settings(settings, good).has_value());
  EXPECT_EQ(settings.weight, 6U);
  const TenantSettings before = settings;
  const std::vector<Setting> bad = {{"weight", "8"}, {"priority", "low"}};
  EXPECT_FALSE(apply_settings(settings, bad).has_value());
  EXPECT_EQ(settings, before);
}

TEST(TenantSettings, AllOfThemFormattedReadBack) {
  const TenantSettings settings{.weight = 300,
                                .priority = Priority::kIdle,
                                .cap = Cap{Micros(123'457), Micros(999'999)},
                                .memory_max = uint64_t{12} << 30,
                                .sm_percent = 25,
                                .slo = Micros(2'000),
                                .length = Micros(600'000'000),
                                .iterations = 5'650,
                                .phase = TenantPhase::kDecode,
                                .gang = TenantGang::kTrue,
                                .sm_min = 50,
                                .sm_shown = true};
  TenantSettings again;
  ASSERT_TRUE(apply_settings(again, format_settings(settings)).has_value());
  EXPECT_EQ(again, settings);
  EXPECT_EQ(format_settings(settings).size(), setting_keys().size());
}

TEST(TenantName, IsMadeOfPlainCharacters) {
  for (const char* name : {"default", "a", "team-1.b_C", "1", "_x",
                           "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0"}) {
    EXPECT_TRUE(check_tenant_name(name).has_value()) << name;
  }
  for (const char* name : {"", ".", "..", ".a", "-a", "a b", "a\n", "\u00e4", "a:b", "a%",
                           "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01"}) {
    EXPECT_FALSE(check_tenant_name(name).has_value()) << name;
  }
  EXPECT_FALSE(check_tenant_name(std::string_view("a\0b", 3)).has_value());
}

TEST(TenantName, MayBeAPath) {
  for (const char* name : {"a/b", "a/b/c", "team-1/job.2/x_3/4"})
    EXPECT_TRUE(check_tenant_name(name).has_value()) << name;
  for (const char* name : {"/", "/a", "a/", "a//b", "a/b/c/d/e", "a/../b", "a/.b", "a/-b", "a b/c"})
    EXPECT_FALSE(check_tenant_name(name).has_value()) << name;
  EXPECT_TRUE(check_tenant_name(std::string(31, 'a') + "/" + std::string(31, 'b')));
  EXPECT_FALSE(check_tenant_name(std::string(31, 'a') + "/" + std::string(32, 'b')));
  EXPECT_EQ(name_above("a"), "");
  EXPECT_EQ(name_above("a/b/cc"), "a/b");
}

TEST(Nearest, FindsSlipsAndNothingElse) {
  const std::vector<std::string_view> words = {"weight", "max", "memory_max", "slo_us"};
  EXPECT_EQ(nearest("weigth", words), "weight");
  EXPECT_EQ(nearest("mx", words), "max");
  EXPECT_EQ(nearest("memory-max", words), "memory_max");
  EXPECT_EQ(nearest("slo", words), "");
  EXPECT_EQ(nearest("colour", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(1000, 'w'), words), "");
}

}  // namespace
}  // namespace gpushare
