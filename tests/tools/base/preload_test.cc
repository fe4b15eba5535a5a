// SPDX-License-Identifier: Apache-2.0
#include "tools/base/preload.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/base/owned_path.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

constexpr const char* kOurs = "/opt/lib/libgpushare.so";

struct Case {
  const char* description;
  std::string text, with, without;
};

TEST(Preload, KeepsWhatOthersWrote) {
  const std::string line = kOurs + "\n"s;
  for (const Case& c : std::initializer_list<Case>{
           {"empty", "", line, ""},
           {"another library", "/lib/a.so\n", "/lib/a.so\n" + line, "/lib/a.so\n"},
           {"no end of line", "/lib/a.so", "/lib/a.so\n" + line, "/lib/a.so"},
           {"ours alone", line, line, ""},
           {"ours between", "/lib/a.so\n" + line + "/lib/b.so\n",
            "/lib/a.so\n" + line + "/lib/b.so\n", "/lib/a.so\n/lib/b.so\n"},
           {"several on a line", "/lib/a.so "s + kOurs + ":/lib/b.so\n",
            "/lib/a.so "s + kOurs + ":/lib/b.so\n", "/lib/a.so :/lib/b.so\n"},
           {"a comment names ours", "# "s + kOurs + "\n", "# "s + kOurs + "\n" + line,
            "# "s + kOurs + "\n"},
           {"a name that only ends like ours", "/lib/xlibgpushare.so\n",
            "/lib/xlibgpushare.so\n" + line, "/lib/xlibgpushare.so\n"}}) {
    EXPECT_EQ(with_preload_entry(c.text, kOurs), c.with) << c.description;
    EXPECT_EQ(without_preload_entry(c.text), c.without) << c.description;
  }
}

TEST(Preload, OfAnotherInstallationIsFoundToo) {
  EXPECT_TRUE(has_preload_entry("/usr/lib/libgpushare.so\n", ""));
  EXPECT_FALSE(has_preload_entry("/usr/lib/libgpushare.so\n", kOurs));
  EXPECT_EQ(without_preload_entry("/usr/lib/libgpushare.so\n"), "");
}

TEST(Preload, RefusesALibraryThatDoesNotLoad) {
  const TempDir folder;
  EXPECT_FALSE(try_preload(folder.at("libgpushare.so")).has_value()) << "there is none";
  folder.write("libgpushare.so", "no library");
  ::chmod(folder.at("libgpushare.so").c_str(), 0755);
  const auto tried = try_preload(folder.at("libgpushare.so"));
  ASSERT_FALSE(tried.has_value());
  EXPECT_EQ(tried.error().code, std::errc::executable_format_error);
}

TEST(Preload, RefusesALibraryThatOthersMayWriteTo) {
  const TempDir folder;
  folder.write("libgpushare.so", "");
  ::chmod(folder.at("libgpushare.so").c_str(), 0777);
  EXPECT_EQ(try_preload(folder.at("libgpushare.so")).error().code,
            std::errc::operation_not_permitted);
}

TEST(Preload, RefusesALibraryInAFolderThatOthersMayWriteTo) {
  const TempDir folder;
  folder.write("open/libgpushare.so", "");
  ::chmod(folder.at("open").c_str(), 0777);
  const auto tried = try_preload(folder.at("open/libgpushare.so"));
  ASSERT_FALSE(tried.has_value());
  EXPECT_EQ(tried.error().code, std::errc::operation_not_permitted);
  EXPECT_TRUE(tried.error().message().contains("/open is writable by others"))
      << tried.error().message();
}

class PreloadCommand : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path built = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
    if (const auto owned = check_owned_path(built / "../lib/libgpushare.so"); !owned)
      GTEST_SKIP() << "the build folder is not ours alone: " << owned.error().message();
  }
  PreloadCommand() { fs::create_directories(folder_.path() / "etc"); }
  ToolResult run(const std::string& what) {
    return run_tool("gpushare", {"preload", what, "--root", folder_.path()});
  }
  std::string list() const { return TempDir::read(folder_.at("etc/ld.so.preload")); }

  const TempDir folder_;
};

TEST_F(PreloadCommand, EnablesShowsAndDisables) {
  EXPECT_EQ(run("status").out, "disabled\n");
  const ToolResult enabled = run("enable");
  ASSERT_EQ(enabled.exit_code, 0) << enabled.err;
  EXPECT_TRUE(list().ends_with("/lib/libgpushare.so\n")) << list();
  EXPECT_EQ(run("status").out, "enabled\n");
  EXPECT_EQ(run("enable").exit_code, 0);
  EXPECT_EQ(list().find('\n'), list().size() - 1) << "once only";
  EXPECT_EQ(run("disable").exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_.at("etc/ld.so.preload")));
}

TEST_F(PreloadCommand, LeavesNoOtherFileAndKeepsOthersEntries) {
  folder_.write("etc/ld.so.preload", "/lib/other.so\n");
  EXPECT_EQ(run("enable").exit_code, 0);
  EXPECT_EQ(run("disable").exit_code, 0);
  EXPECT_EQ(list(), "/lib/other.so\n");
  const fs::directory_iterator etc(folder_.path() / "etc");
  EXPECT_EQ(std::distance(etc, fs::directory_iterator()), 1);
}

TEST_F(PreloadCommand, FollowsALinkInsteadOfReplacingIt) {
  folder_.write("etc/real", "/lib/other.so\n");
  fs::create_symlink("real", folder_.path() / "etc/ld.so.preload");
  EXPECT_EQ(run("enable").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_.path() / "etc/ld.so.preload"));
  EXPECT_TRUE(has_preload_entry(TempDir::read(folder_.at("etc/real")), ""));
}

TEST_F(PreloadCommand, AnUnknownWordIsWrongUsage) { EXPECT_EQ(run("on").exit_code, 2); }

TEST(GpushareRun, WithShimPutsTheLibraryFirst) {
  const ToolResult seen = run_tool(
      "gpushare",
      {"--socket", "/nowhere/agent.sock", "run", "--shim", "--allow-unmanaged", "--", "env"},
      {"LD_PRELOAD=/lib/x86_64-linux-gnu/libc.so.6"});
  EXPECT_EQ(seen.exit_code, 0) << seen.err;
  EXPECT_NE(seen.out.find("/lib/libgpushare.so:/lib/x86_64-linux-gnu/libc.so.6\n"),
            std::string::npos)
      << seen.out;
  EXPECT_NE(seen.out.find("GPUSHARE_SHIM_SOCKET=/nowhere/shim.sock\n"), std::string::npos);
}

}  // namespace
}  // namespace gpushare
