// SPDX-License-Identifier: Apache-2.0
// What gpushare-top keeps of how it was used, and what it does with a file that is wrong.
#include "tools/top/kept.h"

#include <gtest/gtest.h>

#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

TEST(TopKept, WhatIsWrittenIsRead) {
  const TempDir dir;
  const std::string path = dir.at("config/gpushare/top.json");
  EXPECT_EQ(read_choices(path).value(), TopChoices{});
  for (const FieldSpec& spec : kFields) {
    if (spec.sort_key == 0) continue;
    for (Grouping grouping : {Grouping::kNone, Grouping::kTenants, Grouping::kJobs}) {
      const TopChoices choices{.sort = spec.field,
                               .is_reversed = grouping == Grouping::kJobs,
                               .grouping = grouping,
                               .has_graphs = grouping == Grouping::kNone};
      ASSERT_TRUE(write_choices(path, choices));
      EXPECT_EQ(read_choices(path).value(), choices);
    }
  }
}

TEST(TopKept, AFileThatIsWrongSaysWhatIsAllowed) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "no JSON object"},
           {"[1]", "no JSON object"},
           {"{\"sort\": \"colour\"}", "sort is one of gpu pid user"},
           {"{\"sort\": 7}", "sort is one of"},
           {"{\"view\": \"forest\"}", "list, tenants or jobs"},
           {"{\"graphs\": \"yes\"}", "graphs is true or false"},
           {"{\"colour\": true}", "there is no 'colour'"},
           {std::string(100'000, '['), "no JSON object"}}) {
    const auto choices = parse_choices(text);
    ASSERT_FALSE(choices) << text;
    EXPECT_NE(choices.error().message().find(part), std::string::npos) << choices.error().message();
  }
  EXPECT_EQ(parse_choices("{}").value(), TopChoices{});
  const TempDir dir;
  dir.write("top.json", "{");
  const auto choices = read_choices(dir.at("top.json"));
  ASSERT_FALSE(choices);
  EXPECT_NE(choices.error().message().find(dir.at("top.json")), std::string::npos);
}

TEST(TopKept, ThereIsNoFileWhereNothingSaysWhere) {
  const char* const home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  ::unsetenv("XDG_CONFIG_HOME");
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(choices_path(), "");
  ::setenv("HOME", "/nonexistent", 1);
  EXPECT_EQ(choices_path(), "");
  ::setenv("XDG_CONFIG_HOME", "/somewhere", 1);
  EXPECT_EQ(choices_path(), "/somewhere/gpushare/top.json");
  ::unsetenv("XDG_CONFIG_HOME");
  if (home == nullptr)
    ::unsetenv("HOME");
  else
    ::setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace gpushare
