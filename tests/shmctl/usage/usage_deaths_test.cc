// SPDX-License-Identifier: Apache-2.0
// Writers that die at any moment, and a reader beside a writer.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/usage/usage_rig.h"

namespace gpushare::test {
namespace {

// Each call stops twice, where it begins and where it ends; where the next one begins, as much is
// done.
TEST_F(UsageFile, ADeathAtAnyCallOfTheFirstOpenLeavesAFileThatOpens) {
  int calls = 0;
  for (bool is_over = false; !is_over; calls += 2) {
    for (const char* suffix : {"", "-wal", "-journal", ".lock"})
      std::filesystem::remove(options_.path + suffix);
    SteppedChild child(Stride::kSystemCall, [&] {
      auto store = UsageStore::open(options_);
      if (store) (void)store->write(write_of(at(0), 1));
    });
    if (!child.is_traced()) GTEST_SKIP() << "no process may be traced here";
    for (int call = 0; call <= calls && !is_over; ++call) is_over = !child.step();
    child.kill();
    {
      UsageStore store = open();
      ASSERT_TRUE(store.write(write_of(at(1), 1))) << "killed at call " << calls;
    }
    ASSERT_FALSE(std::filesystem::exists(options_.path + ".bad")) << "killed at call " << calls;
    const uint64_t used = used_ms(read());
    ASSERT_TRUE(used == 1 || used == 2) << "killed at call " << calls;
  }
  EXPECT_GT(calls, 50);
}

// What a kill leaves is whole, and has all of which the writer had said that it is written.
TEST_F(UsageFile, SurvivesAHundredKillsWhileWriting) {
  std::mt19937 random(7);
  uint32_t said = 0;
  for (int round = 0; round < 100; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = UsageStore::open(options_);
      if (!store) ::_exit(1);
      for (uint32_t i = said;; ++i) {
        if (!store->write(write_of(at(i % 300), 1))) ::_exit(2);
        if (::write(pipe[1], "x", 1) != 1) ::_exit(3);
      }
    }
    ::close(pipe[1]);
    char byte = 0;
    for (uint32_t left = random() % 6; left > 0 && ::read(pipe[0], &byte, 1) == 1; --left) ++said;
    ::usleep(random() % 3000);
    ::kill(child, SIGKILL);
    int state = 0;
    ::waitpid(child, &state, 0);
    ASSERT_TRUE(WIFSIGNALED(state)) << "the writer ended with " << WEXITSTATUS(state);
    while (::read(pipe[0], &byte, 1) == 1) ++said;
    ::close(pipe[0]);
  }
  const UsageHistory history = read();
  EXPECT_EQ(history.broken, 0U);
  EXPECT_GE(used_ms(history), said);
  EXPECT_LE(used_ms(history), said + 100U);
  EXPECT_GT(said, 50U);
  EXPECT_GT(ask("SELECT count(*) FROM packs"), 5);
  EXPECT_FALSE(std::filesystem::exists(options_.path + ".bad"));
}

TEST_F(UsageFile, IsReadWholeWhileItIsWritten) {
  open();
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = UsageStore::open(options_);
    // It rests now and then, as a slow reader would not get through otherwise, and ends.
    for (uint32_t i = 0; store && i < 2000; ++i) {
      if (!store->write(write_of(at(i % 300), 1))) break;
      if (i % 20 == 19) ::usleep(200'000);
    }
    ::_exit(1);
  }
  uint64_t before = 0;
  for (int looks = 0; looks < 50 || before == 0;) {  // the writer may begin late
    const auto seen = read_usage(options_.path, {.since = kBegin, .until = kBegin + 3600});
    // One that is overtaken by the writer again and again says so.
    if (!seen && seen.error().code == std::errc::resource_unavailable_try_again) continue;
    ASSERT_TRUE(seen) << seen.error().message();
    ++looks;
    const UsageHistory& history = *seen;
    EXPECT_EQ(history.broken, 0U);
    uint64_t of_jobs = 0;
    for (const UsageJobTotal& job : history.jobs) of_jobs += job.amounts.used_ms;
    EXPECT_EQ(used_ms(history), of_jobs) << "half of a write";
    EXPECT_GE(used_ms(history), before);
    before = used_ms(history);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GT(before, 0U);
}

}  // namespace
}  // namespace gpushare::test
