// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/lifeline.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace gpushare {
namespace {

constexpr int kSignal = SIGUSR2;

class LifelineTest : public testing::Test {
 protected:
  void SetUp() override {
    sigemptyset(&signals_);
    sigaddset(&signals_, kSignal);
    ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &signals_, &before_), 0);
    auto made = Lifeline::create(kSignal);
    ASSERT_TRUE(made) << made.error().message();
    lifeline_ = std::move(*made);
  }
  void TearDown() override {
    lifeline_.reset();
    while (is_signalled(0)) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  // Returns true if the signal comes within `seconds`.
  bool is_signalled(int seconds) {
    const timespec limit{.tv_sec = seconds, .tv_nsec = 0};
    return ::sigtimedwait(&signals_, nullptr, &limit) == kSignal;
  }
  // Starts a child that holds the lifeline if `must_hold`, says that it is ready, and lives until
  // it is killed.
  pid_t holder(bool must_hold) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const bool is_held = !must_hold || Lifeline::hold(lifeline_->fd()).has_value();
      if (is_held) (void)!::write(ends[1], "x", 1);
      while (true) ::pause();
    }
    char said = 0;
    EXPECT_EQ(::read(ends[0], &said, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return pid;
  }

  sigset_t signals_{}, before_{};
  std::unique_ptr<Lifeline> lifeline_;
};

TEST_F(LifelineTest, SignalsTheDeathOfItsHolder) {
  const pid_t child = holder(true);
  EXPECT_FALSE(is_signalled(0)) << "it lives";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(is_signalled(30));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// An agent that is given up while its first thread does not come back: what tells its end, late,
// says nothing of the next one.
TEST_F(LifelineTest, IsGivenUpWhileItsHolderLivesAndSaysWhoseDeathASignalTells) {
  const pid_t child = holder(true);
  lifeline_ = std::move(*Lifeline::create(kSignal));
  const pid_t next = holder(true);
  EXPECT_FALSE(lifeline_->has_fired());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(is_signalled(30));
  EXPECT_FALSE(lifeline_->has_fired()) << "it was the other's";
  ASSERT_EQ(::kill(next, SIGKILL), 0);
  EXPECT_TRUE(is_signalled(30));
  EXPECT_TRUE(lifeline_->has_fired());
  for (const pid_t ended : {child, next}) EXPECT_EQ(::waitpid(ended, nullptr, 0), ended);
}

TEST_F(LifelineTest, EndsQuietlyWhenItWasNeverHeld) {
  const pid_t child = holder(false);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  lifeline_.reset();  // does not hang
  EXPECT_FALSE(is_signalled(0));
}

}  // namespace
}  // namespace gpushare
