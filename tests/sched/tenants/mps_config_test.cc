// SPDX-License-Identifier: Apache-2.0
// The table [mps] of the configuration.
#include <gtest/gtest.h>

#include "tests/sched/support/policies.h"

namespace gpushare {
namespace {

std::string refused(std::string_view text) {
  const auto config = test::parse(text, "g.toml");
  return config ? "taken" : config.error().front().message();
}

TEST(MpsConfig, IsOursForAllUsersUnlessItSaysOtherwise) {
  EXPECT_EQ(test::parse("", "g.toml")->mps, MpsConfig{});
  EXPECT_EQ(test::parse("[mps]\nrun = \"auto\"\nusers = \"all\"", "g.toml")->mps, MpsConfig{});
  const auto other =
      test::parse("[mps]\nrun = \"off\"\nusers = \"one\"\nprogram = \"/opt/mps\"", "g.toml");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->mps,
            (MpsConfig{.is_ours = false, .has_all_users = false, .program = "/opt/mps"}));
}

TEST(MpsConfig, MistakesAreNamed) {
  EXPECT_EQ(refused("[mps]\nrun = true"), "g.toml:2:7: mps.run: must be \"auto\" or \"off\"");
  EXPECT_EQ(refused("[mps]\nusers = \"some\""),
            "g.toml:2:9: mps.users: must be \"all\" or \"one\"");
  EXPECT_EQ(refused("[mps]\nprogram = \"\""),
            "g.toml:2:11: mps.program: must be a path, or a name in $PATH");
  EXPECT_EQ(refused("[mps]\nuser = \"all\""),
            "g.toml:2:1: mps.user: unknown key; did you mean 'users'?");
}

}  // namespace
}  // namespace gpushare
