// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/proc_stat.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace gpushare {
namespace {

const std::string kTail = " S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 1 2 3 4\n";

TEST(ProcStat, ReadsCommandParentAndStart) {
  const auto stat = parse_proc_stat("7 (bash)" + kTail);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->command, "bash");
  EXPECT_EQ(stat->parent, 3);
  EXPECT_EQ(stat->start_ticks, 123456u);
}

TEST(ProcStat, NoCommandHidesWhatFollowsIt) {
  for (const char* command :
       {"", " ", ") (", "a) R 1 2 3", "(((", ")))", "a\nb", ") S 9 9 9 9 9"}) {
    const auto stat = parse_proc_stat("7 (" + std::string(command) + ")" + kTail);
    ASSERT_TRUE(stat) << command;
    EXPECT_EQ(stat->command, command);
    EXPECT_EQ(stat->parent, 3) << command;
    EXPECT_EQ(stat->start_ticks, 123456u) << command;
  }
}

TEST(ProcStat, TheStartMayBeTheLastField) {
  const std::string line = "7 (a) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456";
  EXPECT_EQ(parse_proc_stat(line)->start_ticks, 123456u);
  EXPECT_EQ(parse_proc_stat(line + "\n")->start_ticks, 123456u);
}

TEST(ProcStat, MalformedTextIsNone) {
  for (const char* text :
       {"", "7", "7 (a", "7 a)", "7 )a(", "()", "7 (a)", "7 (a) S", "7 (a) S 3 7\n",
        "7 (a)S 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 123456\n",
        "7 (a) S x 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 123456\n",
        "7 (a) S 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 12x\n",
        "7 (a) S 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 -1\n",
        "7 (a) S 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 99999999999999999999999\n",
        "7 (a) S 3 7\n7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 123456\n",
        "7 (a) S 3  7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 123456\n"})
    EXPECT_FALSE(parse_proc_stat(text)) << text;
}

TEST(ProcStat, EveryPrefixIsNoneOrAPrefixOfTheStart) {
  const std::string line = "7 (a) b)" + kTail, start = "123456";
  for (size_t size = 0; size <= line.size(); ++size) {
    const auto stat = parse_proc_stat(line.substr(0, size));
    EXPECT_TRUE(!stat || start.starts_with(std::to_string(stat->start_ticks))) << size;
  }
}

TEST(ProcStat, AnyByteMayStandAnywhere) {
  const std::string line = "7 (a) b)" + kTail;
  for (size_t at = 0; at < line.size(); ++at)
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = line;
      changed[at] = static_cast<char>(byte);
      const auto stat = parse_proc_stat(changed);
      EXPECT_TRUE(!stat || changed.contains('(' + stat->command + ')'));
    }
}

TEST(ReadProcStat, FindsOneself) {
  const auto stat = read_proc_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_GT(stat->start_ticks, 0u);
  EXPECT_EQ(start_ticks_of(::getpid()), stat->start_ticks);
}

// What the kernel really writes for such names.
TEST(ReadProcStat, AnyNameIsReadOver) {
  char before[16] = {};
  ASSERT_EQ(::prctl(PR_GET_NAME, before), 0);
  const uint64_t ticks = start_ticks_of(::getpid());
  for (const char* name : {"a) R 1 2 3", ") ", "(((", "a\nb", "\n", ") S\n0 0 0", " ", "\\", ""}) {
    ASSERT_EQ(::prctl(PR_SET_NAME, name), 0);
    const auto stat = read_proc_stat(::getpid());
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->parent, ::getppid()) << name;
    EXPECT_EQ(stat->start_ticks, ticks) << name;
  }
  ASSERT_EQ(::prctl(PR_SET_NAME, before), 0);
}

// As the kernel writes it, also for a program that hides who has started it.
TEST(RealUid, IsThatOfWhoStartedTheProcess) {
  EXPECT_EQ(real_uid_of(::getpid()), ::getuid());
  EXPECT_EQ(real_uid_of(-1), std::nullopt);
  if (::getuid() != 0) GTEST_SKIP() << "only root can be another user";
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_other = ::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
    (void)!::write(ends[1], &is_other, 1);
    ::pause();
  }
  bool is_other = false;
  EXPECT_EQ(::read(ends[0], &is_other, 1), 1);
  EXPECT_TRUE(is_other);
  EXPECT_EQ(real_uid_of(child), 65534u);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  for (const int end : ends) ::close(end);
}

TEST(ReadProcStat, OfNoProcessIsNone) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_GT(start_ticks_of(child), 0u);  // it has ended, but nobody has waited for it
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(read_proc_stat(child));
  EXPECT_EQ(start_ticks_of(child), 0u);
  EXPECT_EQ(start_ticks_of(-1), 0u);
  EXPECT_EQ(start_ticks_of(0x7FFFFFF0), 0u);
}

}  // namespace
}  // namespace gpushare
