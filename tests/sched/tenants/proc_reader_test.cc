// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/proc_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "shmctl/program/wait.h"
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
  std::string line;  // empty where it could not be read in time
  EXPECT_TRUE(eventually([&] {
    line = reader.details(::getpid())->command_line;
    return !line.empty();
  }));
  EXPECT_EQ(line.find('\0'), std::string::npos);
  EXPECT_EQ(reader.life(details->id), Life::kAlive);
  EXPECT_TRUE(reader.has_ended({::getpid(), details->id.start_ticks + 1}));
}

// A process of the user 4321 that has done something and stands still.
class StandingChild {
 public:
  explicit StandingChild(bool (*deed)()) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool is_done = ::setresuid(4321, 4321, 4321) == 0 && deed();
      if (::write(ready[1], is_done ? "y" : "n", 1) != 1) ::_exit(1);
      ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    has_done_it_ = answer == 'y';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~StandingChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool has_done_it() const { return has_done_it_; }
  std::optional<ProcessDetails> details() const { return SystemProcReader().details(pid_); }

 private:
  pid_t pid_ = 0;
  bool has_done_it_ = false;
};

TEST(ProcReader, AProcessThatCannotBeDumpedKeepsItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const StandingChild child([] { return ::prctl(PR_SET_DUMPABLE, 0) == 0; });
  EXPECT_TRUE(child.has_done_it());
  const auto details = child.details();
  EXPECT_TRUE(details && details->uid == 4321 && details->owners.empty());
}

// One in the other: the user may be anybody there.
TEST(ProcReader, WhoHasMadeTheNamespacesOfAProcessIsKnown) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const StandingChild child([] {
    const std::string group = std::to_string(::getegid());
    // After such a change it does not own its files in /proc otherwise.
    if (::unshare(CLONE_NEWUSER) != 0 || ::prctl(PR_SET_DUMPABLE, 1) != 0) return false;
    // Only who is mapped may make the next one.
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
    std::ofstream("/proc/self/uid_map") << "0 4321 1";
    return ::unshare(CLONE_NEWUSER) == 0;
  });
  if (!child.has_done_it()) GTEST_SKIP() << "users may make no namespaces here";
  const auto details = child.details();
  ASSERT_TRUE(details);
  EXPECT_EQ(details->owners, (std::vector<uid_t>{4321, 4321}));
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

// On a busy machine the name service may take longer than the reader waits; then it asks again.
TEST(ProcReader, RootHasAName) {
  const SystemProcReader reader;
  const auto name_of = [&](uid_t user) {
    std::optional<std::string> name;
    EXPECT_TRUE(eventually([&] { return (name = reader.user_name(user)).has_value(); }));
    return name;
  };
  EXPECT_EQ(name_of(0), "root");
  EXPECT_EQ(name_of(0x7FFFFFF0), "");
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
  auto details = reader_.details(7);
  ASSERT_TRUE(details);
  // Empty where it could not be read in time.
  EXPECT_TRUE(eventually([&] {
    details = reader_.details(7);
    return details && !details->command_line.empty();
  }));
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

TEST_F(ProcFilesTest, SaysWhetherUsersSeeTheirOwnProcessesOnly) {
  std::filesystem::create_directories(root_ + "/self");
  const auto hides = [&](const std::string& options) {
    std::ofstream(root_ + "/self/mounts")
        << "tmpfs /run tmpfs rw 0 0\nproc /proc proc rw" + options + " 0 0\n";
    return SystemProcReader(root_).hides_others();
  };
  EXPECT_FALSE(hides(",nosuid"));
  EXPECT_FALSE(hides(",hidepid=0"));
  EXPECT_FALSE(hides(",hidepid=off,gid=4"));
  EXPECT_TRUE(hides(",nosuid,hidepid=1"));
  EXPECT_TRUE(hides(",hidepid=2,gid=4"));
  EXPECT_TRUE(hides(",hidepid=invisible"));
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

// Whoever reads a command line may have to wait; here nobody ever writes into the file.
TEST_F(ProcFilesTest, ACommandLineThatIsWithheldHoldsNobodyUp) {
  write("stat", kStat);
  write("status", kStatus);
  const std::string file = root_ + "/7/cmdline";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  auto asked = std::async(std::launch::async, [&] {
    // More often than threads may stay behind: then it is not even tried.
    for (int i = 0; i < 3 * BoundedCalls::kMostHanging; ++i)
      if (const auto details = reader_.details(7); !details || !details->command_line.empty())
        return false;
    return true;
  });
  const bool has_answered = asked.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(has_answered);
  // Lets those that hang go, so that the test ends in each case.
  while (asked.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
    ::close(::open(file.c_str(), O_RDWR | O_NONBLOCK));
  EXPECT_TRUE(asked.get());
}

TEST_F(ProcFilesTest, TheCommandLinesOfOthersAreReadMeanwhile) {
  write("stat", kStat);
  write("status", kStatus);
  ASSERT_EQ(::mkfifo((root_ + "/7/cmdline").c_str(), 0600), 0);
  for (int i = 0; i < 2 * BoundedCalls::kMostHangingOfUser; ++i) (void)reader_.details(7);
  std::filesystem::create_directories(root_ + "/8");
  std::ofstream(root_ + "/8/stat") << "8 (b) S 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 9 1 2 3 4\n";
  std::ofstream(root_ + "/8/cmdline") << "serve";
  std::ofstream(root_ + "/8/status") << "Name:\tb\nUid:\t12345\t12345\t12345\t12345\n";
  EXPECT_TRUE(eventually([&] { return reader_.details(8)->command_line == "serve"; }));
}

TEST(ProcReader, ANameServiceThatIsSlowIsWaitedForOnceAndBelievedLater) {
  std::promise<void> answers;
  std::atomic<int> asked = 0;
  const SystemProcReader reader("/proc", [&, may_answer = answers.get_future().share()](uid_t) {
    ++asked;
    may_answer.wait();
    return std::optional<std::string>("alice");
  });
  EXPECT_EQ(reader.user_name(1000), std::nullopt);
  EXPECT_EQ(reader.user_name(1000), std::nullopt);
  answers.set_value();
  while (!reader.user_name(1000)) std::this_thread::yield();
  EXPECT_EQ(reader.user_name(1000), "alice");
  EXPECT_EQ(asked, 1);
}

TEST(ProcReader, ANameServiceThatFailsIsAskedAgain) {
  std::atomic<bool> fails = true;
  const SystemProcReader reader(
      "/proc", [&](uid_t) { return fails ? std::nullopt : std::optional<std::string>("alice"); });
  while (reader.user_name(1000)) std::this_thread::yield();
  fails = false;
  while (reader.user_name(1000) != "alice") std::this_thread::yield();
}

TEST(ProcReader, AskingForManyNamesThatHangIsBounded) {
  std::promise<void> end;
  std::atomic<std::size_t> asked = 0, ended = 0;
  const SystemProcReader reader("/proc", [&, may_end = end.get_future().share()](uid_t) {
    ++asked;
    may_end.wait();
    ++ended;
    return std::optional<std::string>("x");
  });
  for (uid_t uid = 1000; uid < 1000 + 4 * SystemProcReader::kMostAsked; ++uid)
    EXPECT_FALSE(reader.user_name(uid));
  end.set_value();
  while (ended < SystemProcReader::kMostAsked) std::this_thread::yield();
  EXPECT_EQ(asked, SystemProcReader::kMostAsked);
}

}  // namespace
}  // namespace gpushare
