// SPDX-License-Identifier: Apache-2.0
// The module's rules for names and patterns are compared with the agent's.
#include "kmod/members/names.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "sched/tenants/rules.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

bool kernel_takes_name(std::string_view name) { return gs_name_is_valid(name.data(), name.size()); }
bool kernel_takes_path(std::string_view path) { return gs_path_is_valid(path.data(), path.size()); }

TEST(KmodNames, AreThoseThatTheAgentTakes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string first(1, static_cast<char>(byte));
    const std::string later = "a" + first;
    for (const std::string& name : {first, later, first + "b", later + "b"})
      EXPECT_EQ(kernel_takes_path(name), check_tenant_name(name).has_value()) << byte;
  }
}

TEST(KmodNames, HaveAtMost63Characters) {
  EXPECT_FALSE(kernel_takes_name(""));
  EXPECT_TRUE(kernel_takes_name(std::string(63, 'a')));
  EXPECT_FALSE(kernel_takes_name(std::string(64, 'a')));
}

TEST(KmodNames, AreNoPaths) {
  for (const char* name : {".", "..", "../x", "a/b", "a b", "a\n"})
    EXPECT_FALSE(kernel_takes_name(name)) << name;
}

TEST(KmodNames, APathHasUpToFourOfThem) {
  const auto takes = [](std::string_view path) {
    EXPECT_EQ(kernel_takes_path(path), check_tenant_name(path).has_value()) << path;
    return kernel_takes_path(path);
  };
  for (const char* path : {"a", "a/b", "a/b/c", "a/b/c/d", "team-1/job.2/x_3"})
    EXPECT_TRUE(takes(path)) << path;
  for (const char* path :
       {"", "/", "/a", "a/", "a//b", "a/b/c/d/e", "a/../b", "a/.b", "a/-b", "a b/c"})
    EXPECT_FALSE(takes(path)) << path;
  EXPECT_TRUE(takes(std::string(31, 'a') + "/" + std::string(31, 'b')));
  EXPECT_FALSE(takes(std::string(31, 'a') + "/" + std::string(32, 'b')));
}

TEST(KmodNames, ThePathAboveIsThatBeforeTheLastName) {
  const auto above = [](std::string_view path) {
    return path.substr(0, gs_path_parent(path.data(), path.size()));
  };
  EXPECT_EQ(above("a"), "");
  EXPECT_EQ(above("a/b"), "a");
  EXPECT_EQ(above("a/b/cc"), "a/b");
}

// Visits every word of up to `longest` letters.
void for_each_word(std::string_view letters, size_t longest, const auto& visit) {
  std::string word;
  const auto grow = [&](const auto& self) -> void {
    visit(word);
    if (word.size() == longest) return;
    for (const char letter : letters) {
      word.push_back(letter);
      self(self);
      word.pop_back();
    }
  };
  grow(grow);
}

TEST(KmodGlob, MatchesAsTheAgentsDoes) {
  for_each_word("a/*?", 4, [](const std::string& pattern) {
    for_each_word("ab/", 4, [&](const std::string& text) {
      EXPECT_EQ(gs_glob_matches(pattern.c_str(), text.c_str()), glob_matches(pattern, text))
          << pattern << " on " << text;
    });
  });
}

TEST(KmodGlob, IsNotSlowOnHostilePatterns) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a";
  EXPECT_FALSE(gs_glob_matches((pattern + "b").c_str(), std::string(4000, 'a').c_str()));
}

}  // namespace
}  // namespace gpushare
