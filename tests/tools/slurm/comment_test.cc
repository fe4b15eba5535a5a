// SPDX-License-Identifier: Apache-2.0
// What is said to Slurm of a job, by which program, and what is kept of it meanwhile.
#include "tools/slurm/comment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/tools/support/temp_dir.h"
#include "tools/slurm/child.h"
#include "tools/slurm/kept.h"

namespace gpushare {
namespace {

std::string comment(const char* answer, const char* node) {
  std::string text(GS_COMMENT_SIZE, 'x');
  gs_comment(answer, node, text.data());
  return text.c_str();
}

TEST(SlurmComment, SaysWhatBindsAJobAndWhatItUsed) {
  EXPECT_EQ(comment(R"({"gpu_time_ns":1500400999,"ok":true,"settings":{"max":"30%","memory_max":)"
                    R"("1073741824","priority":"idle","weight":"20"},"throttled_ns":7000000})",
                    "n-1"),
            "gpushare: node=n-1 weight=20 cap=30% mem=1073741824 priority=idle gpu_seconds=1.500 "
            "throttled_seconds=0.007");
  // A cap of a period of its own has a blank, which would end the word.
  EXPECT_EQ(comment(R"({"settings":{"max":"30000 90000"}})", nullptr),
            "gpushare: cap=30000/90000 gpu_seconds=0.000 throttled_seconds=0.000");
}

// Whatever the agent would say, no word of it reaches a shell or the database's language.
TEST(SlurmComment, HasNothingThatMeansSomethingElsewhere) {
  const std::string odd =
      R"({"settings":{"weight":"';`$(x)\\n","max":")" + std::string(5000, '"') + "\"}}";
  const std::string text = comment(odd.c_str(), std::string(5000, '\'').c_str());
  EXPECT_LT(text.size(), size_t{GS_COMMENT_SIZE});
  EXPECT_EQ(text.find_first_of("\"'`$();\\"), std::string::npos) << text;
  for (const char* answer : {"", "{", R"({"settings":7})", R"({"settings":{"weight":)"})
    EXPECT_TRUE(comment(answer, nullptr).ends_with("throttled_seconds=0.000")) << answer;
}

TEST(SlurmComment, AnElementOfAnArrayIsNotAllOfIt) {
  const auto name = [](uint32_t job, uint32_t array, uint32_t element) {
    char text[GS_JOB_SIZE];
    gs_job_name(job, array, element, text);
    return std::string(text);
  };
  constexpr uint32_t kNone = 0xfffffffe;
  EXPECT_EQ(name(17, 0, kNone), "17");
  EXPECT_EQ(name(17, 17, kNone), "17");
  EXPECT_EQ(name(17, 17, 3), "17_3");
  EXPECT_EQ(name(18, 17, 0), "17_0");
  EXPECT_EQ(name(0xffffffff, 0xffffffff, 0xfffffffd), "4294967295_4294967293");
}

struct Ended {
  int result;
  std::string why;
};

Ended run(const char* script, unsigned limit_s, int wait_ms) {
  const std::vector<const char*> words{"/bin/sh", "-c", script, nullptr};
  const int fd = gs_start(words.data(), limit_s);
  EXPECT_GE(fd, 0);
  char why[64];
  const int result = gs_await_end(fd, wait_ms, why, sizeof why);
  return {result, why};
}

constexpr int kPatienceMs = 60'000;

TEST(SlurmChild, SaysHowItEnded) {
  EXPECT_EQ(run("echo what nobody reads", 60, kPatienceMs).result, 0);
  EXPECT_EQ(run("echo 'Ignoring a word' >&2", 60, kPatienceMs).result, 0) << "a warning";
  const Ended silent = run("exit 3", 60, kPatienceMs);
  EXPECT_EQ(silent.result, -1);
  EXPECT_EQ(silent.why, "ended with code 3");
  EXPECT_EQ(run("kill -KILL $$", 60, kPatienceMs).why, "ended by signal 9");
  const Ended refused = run("echo 'not allowed' >&2; echo more >&2; exit 1", 60, kPatienceMs);
  EXPECT_EQ(refused.result, -1);
  EXPECT_EQ(refused.why, "not allowed");
  const Ended long_one = run("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", 60, kPatienceMs);
  EXPECT_EQ(long_one.why, std::string(63, 'x'));
  const char* const missing[] = {"/nowhere/scontrol", nullptr};
  char why[64];
  EXPECT_EQ(gs_await_end(gs_start(missing, 60), kPatienceMs, why, sizeof why), -1);
  EXPECT_STREQ(why, "/nowhere/scontrol cannot be run");
}

TEST(SlurmChild, NobodyWaitsForOneThatDoesNotEnd) {
  const Ended ended = run("sleep 1000", 1, 10);
  EXPECT_EQ(ended.result, -1);
  EXPECT_EQ(ended.why, "no answer within 10 ms");
}

// It has nothing of the daemon's: neither descriptors, nor what it ignores or blocks, nor its
// environment but for where slurm.conf is. The kernel ends it, whatever the daemon blocks.
TEST(SlurmChild, HasNothingOfItsParents) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::setenv("SLURM_CONF", "/etc/somewhere/slurm.conf", 1);
  ::setenv("GPUSHARE_SECRET", "1", 1);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGALRM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto handler = std::signal(SIGTERM, SIG_IGN);
  const Ended ended = run("env | grep -c -e GPUSHARE -e LD_ >&2", 60, kPatienceMs);
  const Ended where = run("echo $SLURM_CONF >&2; exit 1", 60, kPatienceMs);
  const Ended open = run("ls /proc/self/fd | grep -v -x -e 0 -e 1 -e 2 -e 3 >&2", 60, kPatienceMs);
  const Ended signals = run("kill -TERM $$; echo it lives >&2", 60, kPatienceMs);
  const Ended alarm = run("exec sleep 1000", 1, kPatienceMs);
  (void)std::signal(SIGTERM, handler);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::unsetenv("SLURM_CONF");
  ::unsetenv("GPUSHARE_SECRET");
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(ended.why, "0");
  EXPECT_EQ(where.why, "/etc/somewhere/slurm.conf");
  EXPECT_EQ(open.why, "ended with code 1") << "grep has found no other";
  EXPECT_EQ(signals.why, "ended by signal 15");
  EXPECT_EQ(alarm.why, "ended by signal 14");
}

TEST(SlurmKept, IsThereUntilItIsForgotten) {
  const TempDir folder;
  const std::string path = folder.at("agent.sock");
  const char* const socket = path.c_str();
  const auto kept = [&](uint32_t job, gs_kept what = GS_ACCOUNT) {
    char text[GS_KEPT_SIZE];
    gs_look_up(socket, what, job, text);
    return std::string(text);
  };
  EXPECT_EQ(kept(7), "");
  ASSERT_EQ(gs_keep(socket, GS_ACCOUNT, 7, "chemistry"), 0);
  ASSERT_EQ(gs_keep(socket, GS_ACCOUNT, 7, "art"), 0) << "the job was started again";
  ASSERT_EQ(gs_keep(socket, GS_ACCOUNT, 8, "physics"), 0);
  ASSERT_EQ(gs_keep(socket, GS_UNACCOUNTED, 7, "6_1"), 0);
  EXPECT_EQ(kept(7), "art");
  gs_forget(socket, GS_ACCOUNT, 7);
  EXPECT_EQ(kept(7), "");
  EXPECT_EQ(kept(8), "physics");
  EXPECT_EQ(kept(7, GS_UNACCOUNTED), "6_1");
  // Where Slurm checks no account, it is a word of the user's.
  for (const std::string& odd :
       {std::string("a/b"), std::string(".."), std::string("-x"), std::string("a\",\"b"),
        std::string("a\nb"), std::string(64, 'a')}) {
    ASSERT_EQ(gs_keep(socket, GS_ACCOUNT, 9, odd.c_str()), 0);
    EXPECT_EQ(kept(9), "") << odd;
  }
  EXPECT_NE(gs_keep("/nowhere/agent.sock", GS_ACCOUNT, 1, "art"), 0);
}

}  // namespace
}  // namespace gpushare
