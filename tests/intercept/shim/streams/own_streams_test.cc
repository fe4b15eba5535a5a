// SPDX-License-Identifier: Apache-2.0
// The streams of threads: whose is whose when threads come, end and capture.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <random>
#include <thread>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

// From now on the calling thread may not ask for others. False: the kernel knows no such rule.
bool refuse_tgkill() {
  sock_filter rule[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(rule), .filter = rule};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A program that has a new thread for each piece of work would have more and more stand-ins.
TEST_F(StreamsTest, AThreadHasTheStreamOfOneThatHasEnded) {
  visit(kSets, {{kLegacy}});
  size_t after_a_few = 0;
  for (int i = 0; i < 200; ++i) {
    std::thread([&] {
      move_to(1 + i % 3);
      for (int j = 0; j < 3; ++j) launch(GS_CU_STREAM_PER_THREAD);
    }).join();
    launch(kLegacy);
    if (i == 10) after_a_few = the_gpu->created();
  }
  EXPECT_EQ(the_gpu->created(), after_a_few);
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(slot_->gpus[0].moves, 200u);
}

// Nothing would move any more, and calls of the legacy stream would be refused.
TEST_F(StreamsTest, TheCaptureOfAThreadThatHasEndedIsOver) {
  const CUstream stream = new_stream();
  visit({{1}}, {{stream}});
  for (const bool is_away : {true, false}) {
    SCOPED_TRACE(is_away);
    move_to(is_away ? 1 : 0);
    launch(stream);
    CUstream there = nullptr;
    pid_t number = 0;
    std::thread([&] {
      number = ::gettid();
      launch(GS_CU_STREAM_PER_THREAD);
      Stream& own = *streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy);
      streams().begin_capture(own);
      there = own.physical();
      launch(GS_CU_STREAM_PER_THREAD);
      EXPECT_TRUE(streams().is_any_capturing()) << "while it lives";
    }).join();
    // Who joins it may be told a moment before the kernel has forgotten it.
    while (::syscall(SYS_tgkill, ::getpid(), number, 0) == 0) std::this_thread::yield();
    ended_capture = nullptr;
    launch(stream);
    EXPECT_FALSE(streams().is_any_capturing());
    EXPECT_EQ(ended_capture, is_away ? there : nullptr);
    move_to(2);
    launch(stream);
    EXPECT_EQ(slot_->gpus[0].applied, 2u);
  }
}

// Work in line in a stand-in would hold up what has nothing to do with it.
TEST_F(StreamsTest, NobodyHasTheStreamOfAThreadThatLivesOrWhoseWorkRuns) {
  visit({{1}}, {{kLegacy, GS_CU_STREAM_PER_THREAD}});
  the_gpu->is_busy = [] { return true; };
  size_t last = launch(GS_CU_STREAM_PER_THREAD);
  int away = 0;
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      Call call(*this, GS_CU_STREAM_PER_THREAD);
      call.put();
      away += call.is_away();
      EXPECT_FALSE(is_first(last, call.number()));
      last = call.number();
    }).join();
  EXPECT_GT(away, 0) << "in stand-ins that were there; nothing can be made";
  EXPECT_LE(away, Device::kSpares);
  the_gpu->is_busy = {};
}

// A sandbox may refuse the question whether a thread lives. Were its stream taken away from one
// that does, its work at home would not be seen any more by those that move the stream.
TEST_F(StreamsTest, NobodyHasTheStreamOfAThreadOfWhichNothingIsKnown) {
  launch(GS_CU_STREAM_PER_THREAD);
  Stream* const mine = streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy);
  std::thread([&] {
    ASSERT_TRUE(refuse_tgkill());
    EXPECT_NE(streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy), mine);
  }).join();
}

TEST_F(StreamsTest, OrderHoldsWhileThreadsComeAndGo) {
  visit(kSets, {{kLegacy}});
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 40; ++i)
        std::thread([&] {
          for (uint64_t j = 1 + random() % 8; j > 0; --j) {
            if (random() % 8 == 0) move_to(random() % std::size(kSets));
            launch(random() % 4 == 0 ? kLegacy : GS_CU_STREAM_PER_THREAD);
          }
        }).join();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

}  // namespace
}  // namespace gpushare::shim
