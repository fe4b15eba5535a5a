// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/proc_reader.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/sched/support/fake_lineage.h"
#include "tests/sched/support/fake_proc_reader.h"

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

TEST(ProcReader, AProcessThatCannotBeDumpedKeepsItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_hidden = ::setresuid(4321, 4321, 4321) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
    if (::write(ready[1], is_hidden ? "y" : "n", 1) != 1) ::_exit(1);
    ::pause();
  }
  char answer = 0;
  EXPECT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const auto details = SystemProcReader().details(child);
  EXPECT_TRUE(details && details->uid == 4321);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
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

TEST(ProcReader, TheFounderOfItsLineIsAnAncestorWhateverTheChainOfParentsSays) {
  test::FakeProcReader reader;
  test::FakeLineage lineage;
  const ProcessId founder{70, 1}, daemon{80, 2};
  reader.add(daemon, "daemon").parent = 1;
  EXPECT_NE(reader.ancestors(daemon.pid).front(), founder);
  reader.set_lineage(&lineage);
  EXPECT_NE(reader.ancestors(daemon.pid).front(), founder) << "it is of no line";
  lineage.lines[daemon.pid] = founder;
  EXPECT_EQ(reader.ancestors(daemon.pid).front(), founder);
}

TEST(ProcReader, ALineIsExtinctWhenNobodyOfItLives) {
  test::FakeProcReader reader;
  test::FakeLineage lineage;
  const ProcessId one{70, 1}, two{71, 1};
  EXPECT_EQ(reader.extinct({one, two}).size(), 2U) << "lines are not followed";
  reader.set_lineage(&lineage);
  lineage.lines[80] = one;
  EXPECT_EQ(reader.extinct({one, two}), std::vector{two});
  lineage.is_readable = false;
  EXPECT_TRUE(reader.extinct({one, two}).empty()) << "what is not known must not end a tenant";
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

// The first number is the real user, who started it; the second one is what a set-user-id program
// makes of it. A name with a newline is shown escaped, so that it cannot make up the line.
constexpr const char* kStatus =
    "Name:\ta\\nUid:\t0\nPid:\t7\nUid:\t1234\t0\t0\t0\nGid:\t5\t5\t5\t5\n";

TEST_F(ProcFilesTest, TheUserIsTheRealOneAndNotTheFilesOwner) {
  write("stat", kStat);
  EXPECT_FALSE(reader_.details(7)) << "whose it is must not be guessed";
  write("status", kStatus);
  EXPECT_EQ(reader_.details(7)->uid, 1234u);
}

TEST_F(ProcFilesTest, ACommandMayContainBlanksAndParentheses) {
  write("stat", kStat);
  write("status", kStatus);
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
  write("status", kStatus);
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

}  // namespace
}  // namespace gpushare
