// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/last_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "shmctl/base/proc_stat.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/program/wait.h"

namespace gpushare {
namespace {

constexpr const char* kNoSignals = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
constexpr const char* kKilled = "SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n";

// Stands for /proc.
class LastThreads : public ::testing::Test {
 protected:
  struct Thread {
    pid_t tid;
    const char* name;
    char state;
    bool is_exiting = false;
  };
  void add(pid_t pid, std::initializer_list<Thread> threads, const char* signals) {
    for (const Thread& thread : threads) {
      const std::string folder =
          root() + "/" + std::to_string(pid) + "/task/" + std::to_string(thread.tid);
      std::filesystem::create_directories(folder);
      std::ofstream(folder + "/stat") << line(thread);
      if (thread.tid == pid) {
        std::ofstream(root() + "/" + std::to_string(pid) + "/stat") << line(thread);
        std::ofstream(root() + "/" + std::to_string(pid) + "/status") << "State:\n" << signals;
      }
    }
  }
  static std::string line(const Thread& thread) {
    return std::to_string(thread.tid) + " (" + thread.name + ") " + thread.state + " 1 7 7 0 -1 " +
           (thread.is_exiting ? "4194564" : "4194560") + " 1 2 3 4 5 6 7 8 20 0 1 0 77 1 2\n";
  }
  std::string root() const { return folder_.path(); }
  bool has_died(const ProcessId& process) const { return gpushare::has_died(process, root()); }
  bool may_ask(pid_t pid, uint32_t gpu) const { return may_ask_gpu({pid, 77}, gpu, root()); }

  const TempFolder folder_ = TempFolder::make("gpushare-proc").value();
};

TEST_F(LastThreads, OfALivingProcessOnlyThoseWithTheGpusNameMayAskIt) {
  add(7, {{7, "gpushared", 'S'}, {8, "gpushare-gpu1", 'S'}, {9, "gpushare-gpu12", 'D'}},
      kNoSignals);
  EXPECT_FALSE(has_died({7, 77}));
  EXPECT_EQ(threads_of(7, root())->size(), 3u);
  EXPECT_TRUE(may_ask(7, 1));
  EXPECT_TRUE(may_ask(7, 12));
  EXPECT_FALSE(may_ask(7, 2));
}

TEST_F(LastThreads, OfADeadOneTheLastOneMayAskItsGpuAlone) {
  add(7, {{7, "gpushared", 'Z'}, {8, "gpushare-gpu1", 'D'}, {9, "gpushare-gpu2", 'Z'}}, kNoSignals);
  EXPECT_TRUE(has_died({7, 77}));
  EXPECT_TRUE(may_ask(7, 1));
  EXPECT_FALSE(may_ask(7, 2)) << "that thread has ended";
  EXPECT_FALSE(may_ask(7, 0));
}

TEST_F(LastThreads, AKilledOneWhoseFirstThreadIsLeftMayAskAnyGpu) {
  add(7, {{7, "gpushared", 'D'}}, kKilled);
  EXPECT_TRUE(has_died({7, 77}));
  EXPECT_TRUE(may_ask(7, 3));
}

// It was not killed, or has taken the signal: what it still does is to close what it has open.
TEST_F(LastThreads, OneWhoseFirstThreadDoesNotComeToItsEndHasDiedAndAsksNoGpu) {
  add(7, {{7, "gpushared", 'D', /*is_exiting=*/true}}, kNoSignals);
  EXPECT_TRUE(has_died({7, 77}));
  EXPECT_FALSE(may_ask(7, 3));
}

TEST_F(LastThreads, OneThatAsksAllGpusMayAskEach) {
  add(7, {{7, "gpushared", 'Z'}, {8, "gpushare-gpus", 'D'}}, kNoSignals);
  EXPECT_TRUE(may_ask(7, 3));
}

TEST_F(LastThreads, WhoeverHasThePidNowIsAnother) {
  add(7, {{7, "gpushare-gpu1", 'S'}}, kNoSignals);
  EXPECT_TRUE(has_died({7, 78}));
  EXPECT_FALSE(may_ask_gpu({7, 78}, 1, root()));
  EXPECT_FALSE(has_died({7, 0})) << "whichever process that is";
  EXPECT_TRUE(has_died({8, 0})) << "none";
  EXPECT_FALSE(may_ask(8, 1));
}

TEST_F(LastThreads, WhatCannotBeReadMayAskAndHasNotDied) {
  std::filesystem::create_directories(root() + "/7");
  std::ofstream(root() + "/7/stat") << "nonsense";
  EXPECT_FALSE(has_died({7, 0}));
  EXPECT_TRUE(may_ask(7, 1));
}

TEST(LastThreadsOfTheSystem, ANamedThreadIsSeenAndAKilledProcessHasDied) {
  std::thread asking([] {
    name_gpu_thread(5);
    const ProcessId self{::getpid(), start_ticks_of(::getpid())};
    EXPECT_TRUE(may_ask_gpu(self, 5));
    EXPECT_FALSE(may_ask_gpu(self, 6));
  });
  asking.join();
  EXPECT_FALSE(may_ask_gpu({::getpid(), 0}, 5));

  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  EXPECT_FALSE(has_died({child, 0}));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(eventually([&] { return has_died({child, 0}); })) << "it is not reaped yet";
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace gpushare
