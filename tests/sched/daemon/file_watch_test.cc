// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/file_watch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace gpushare {
namespace {

class FileWatchTest : public ::testing::Test {
 protected:
  static constexpr int kSignal = SIGUSR2;

  void SetUp() override {
    sigemptyset(&mask_);
    sigaddset(&mask_, kSignal);
    ::sigprocmask(SIG_BLOCK, &mask_, &before_);
    folder_ = std::filesystem::path(::testing::TempDir()) / "watch-XXXXXX";
    std::string name = folder_.string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    while (has_signal(0)) {
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    std::filesystem::remove_all(folder_);
  }
  bool has_signal(time_t seconds) {
    const timespec wait{.tv_sec = seconds, .tv_nsec = 0};
    return ::sigtimedwait(&mask_, nullptr, &wait) == kSignal;
  }
  void make(const char* name) { std::ofstream(folder_ / name) << "x"; }

  std::filesystem::path folder_;
  sigset_t mask_{}, before_{};
};

TEST_F(FileWatchTest, EveryFileThatIsMadeIsToldOnceDrained) {
  auto watch = FileWatch::start(folder_ / "gpushare", kSignal);
  ASSERT_TRUE(watch);
  EXPECT_FALSE(has_signal(0));
  make("other");
  EXPECT_TRUE(has_signal(60));
  watch->drain();
  make("gpushare");
  EXPECT_TRUE(has_signal(60));
}

TEST_F(FileWatchTest, AFileThatIsOnlyWrittenIsNotTold) {
  make("gpushare");
  auto watch = FileWatch::start(folder_ / "gpushare", kSignal);
  ASSERT_TRUE(watch);
  make("gpushare");
  EXPECT_FALSE(has_signal(0));
  // Events come in order: when this one is told, nothing of the write is still on its way.
  make("other");
  EXPECT_TRUE(has_signal(60));
}

TEST_F(FileWatchTest, SaysWhichFolderIsNotThere) {
  const auto watch = FileWatch::start(folder_ / "none" / "gpushare", kSignal);
  ASSERT_FALSE(watch);
  EXPECT_EQ(watch.error().code, std::errc::no_such_file_or_directory);
  EXPECT_NE(watch.error().message().find((folder_ / "none").string()), std::string::npos);
}

}  // namespace
}  // namespace gpushare
