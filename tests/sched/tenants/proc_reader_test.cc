// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/proc_reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace gpushare {
namespace {

TEST(ProcReader, ReadsOneself) {
  const SystemProcReader reader;
  const auto details = reader.details(::getpid());
  ASSERT_TRUE(details);
  EXPECT_EQ(details->id.pid, ::getpid());
  EXPECT_GT(details->id.start_ticks, 0u);
  EXPECT_EQ(details->parent, ::getppid());
  EXPECT_EQ(details->uid, ::geteuid());
  EXPECT_FALSE(details->command_line.empty());
  EXPECT_EQ(details->command_line.find('\0'), std::string::npos);
  EXPECT_TRUE(reader.is_alive(details->id));
  EXPECT_FALSE(reader.is_alive({::getpid(), details->id.start_ticks + 1}));
}

TEST(ProcReader, AProcessThatEndedIsNotFound) {
  const SystemProcReader reader;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(reader.link(child));
  EXPECT_FALSE(reader.details(child));
}

TEST(ProcReader, AncestorsStartWithTheParentAndEndAtInit) {
  const SystemProcReader reader;
  const auto ancestors = reader.ancestors(::getpid());
  ASSERT_FALSE(ancestors.empty());
  EXPECT_EQ(ancestors.front().pid, ::getppid());
  EXPECT_TRUE(std::ranges::all_of(ancestors, [](const auto& a) { return a.pid > 0; }));
}

TEST(ProcReader, RootHasAName) {
  const SystemProcReader reader;
  EXPECT_EQ(reader.user_name(0), "root");
  EXPECT_EQ(reader.user_name(0x7FFFFFF0), "");
}

// Files as the kernel writes them, the awkward ones included.
class ProcFilesTest : public ::testing::Test {
 protected:
  ProcFilesTest() { std::filesystem::create_directories(root_ + "/7"); }
  ~ProcFilesTest() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(root_ + "/7/" + file, std::ios::binary) << text;
  }

  const std::string root_ = ::testing::TempDir() + "/proc-" + std::to_string(::getpid());
  const SystemProcReader reader_{root_};
};

constexpr const char* kStat =
    "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 1 2 3 4\n";

TEST_F(ProcFilesTest, ACommandMayContainBlanksAndParentheses) {
  write("stat", kStat);
  write("cmdline", std::string("python\0train.py\0", 16));
  write("cgroup", "0::/user.slice/a b.scope\n");
  const auto details = reader_.details(7);
  ASSERT_TRUE(details);
  EXPECT_EQ(details->command, "a) b (c");
  EXPECT_EQ(details->parent, 3);
  EXPECT_EQ(details->id.start_ticks, 123456u);
  EXPECT_EQ(details->command_line, "python train.py");
  EXPECT_EQ(details->cgroup, "/user.slice/a b.scope");
}

TEST_F(ProcFilesTest, WithoutCgroupV2TheNamedHierarchyCounts) {
  write("stat", kStat);
  write("cgroup", "4:memory:/m\n1:name=systemd:/system.slice/x.service\n");
  EXPECT_EQ(reader_.details(7)->cgroup, "/system.slice/x.service");
  write("cgroup", "");
  EXPECT_EQ(reader_.details(7)->cgroup, "");
}

TEST_F(ProcFilesTest, AMalformedStatIsNoProcess) {
  for (const char* text : {"", "7", "7 (a", "7 )a(", "7 (a) S", "7 (a) S 3 7\n"}) {
    write("stat", text);
    EXPECT_FALSE(reader_.link(7)) << text;
  }
}

TEST(SystemProcReader, WithoutADescriptorNobodyIsTakenForEnded) {
  const SystemProcReader reader;
  const ProcessId self = reader.link(::getpid()).value().id;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool is_readable = reader.link(self.pid).has_value();
  const bool has_self_ended = reader.has_ended(self), has_child = reader.has_ended({child, 1});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_readable);
  EXPECT_FALSE(has_self_ended);
  EXPECT_TRUE(has_child);
  EXPECT_TRUE(reader.has_ended({self.pid, self.start_ticks + 1})) << "another one has its pid";
}

}  // namespace
}  // namespace gpushare
