// SPDX-License-Identifier: Apache-2.0
#include "tools/base/owned_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

constexpr mode_t kFolder = S_IFDIR | 0755, kFile = S_IFREG | 0644;
constexpr uid_t kBob = 1001;

TEST(OwnedPath, EachFolderAboveTheFileMustBeRoots) {
  struct Row {
    const char* description;
    std::vector<PathPart> parts;
    uid_t own;
    const char* says;  // nullptr: nobody else may replace it
  };
  const PathPart root{"/", 0, kFolder};
  const Row table[] = {
      {"installed", {root, {"/usr", 0, kFolder}, {"/usr/a.so", 0, kFile}}, 0, nullptr},
      {"the file is another's", {root, {"/a.so", kBob, kFile}}, 0, "/a.so belongs to user 1001"},
      {"root's file in a user's folder",
       {root, {"/home/bob", kBob, kFolder}, {"/home/bob/a.so", 0, kFile}},
       0,
       "/home/bob belongs to user 1001"},
      {"further above",
       {root, {"/b", kBob, kFolder}, {"/b/c", 0, kFolder}, {"/b/c/a.so", 0, kFile}},
       0,
       "/b belongs to user 1001"},
      {"a group may write",
       {root, {"/opt", 0, S_IFDIR | 0775}, {"/opt/a.so", 0, kFile}},
       0,
       "/opt is writable by others (mode 0775)"},
      {"all may write the file", {root, {"/a.so", 0, S_IFREG | 0666}}, 0, "(mode 0666)"},
      {"sticky", {root, {"/tmp", 0, S_IFDIR | 01777}, {"/tmp/a.so", 0, kFile}}, 0, nullptr},
      {"another's sticky folder",
       {root, {"/t", kBob, S_IFDIR | 01777}, {"/t/a.so", 0, kFile}},
       0,
       "/t belongs to user 1001"},
      {"a sticky file", {root, {"/a.so", 0, S_IFREG | 01666}}, 0, "/a.so is writable by others"},
      {"one's own, for oneself",
       {root, {"/home/bob", kBob, kFolder}, {"/home/bob/a.so", kBob, kFile}},
       kBob,
       nullptr},
  };
  for (const Row& row : table) {
    const std::string why = why_replaceable(row.parts, row.own);
    if (row.says == nullptr) {
      EXPECT_EQ(why, "") << row.description;
      continue;
    }
    EXPECT_TRUE(why.contains(row.says)) << row.description << ": " << why;
    EXPECT_TRUE(why.contains("must belong to root")) << why;
  }
}

TEST(OwnedPath, IsWalkedFromTheRootAndThroughLinks) {
  const TempDir folder;
  folder.write("open/real/a.so", "");
  std::filesystem::create_directory_symlink(folder.at("open/real"), folder.at("link"));
  if (const auto before = check_owned_path(folder.at("link/a.so")); !before)
    GTEST_SKIP() << "the temporary folder is not ours alone: " << before.error().message();
  ::chmod(folder.at("open").c_str(), 0777);
  const auto refused = check_owned_path(folder.at("link/a.so"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::operation_not_permitted);
  EXPECT_TRUE(refused.error().message().contains("/open is writable by others (mode 0777)"))
      << refused.error().message();
  EXPECT_EQ(check_owned_path(folder.at("none")).error().code, std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace gpushare
