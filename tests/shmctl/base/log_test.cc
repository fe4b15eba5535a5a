// SPDX-License-Identifier: Apache-2.0
// A log that nobody reads holds nobody up.
#include "shmctl/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

// Standard error is a pipe while it lives.
class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = Fd(ends[0]);
    const Fd writer(ends[1]);
    EXPECT_EQ(::dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
    EXPECT_GT(::fcntl(reader_.get(), F_SETPIPE_SZ, 4096), 0);
    ::alarm(60);  // ends a test that waits for ever
  }
  ~LogTest() override {
    ::alarm(0);
    ::dup2(before_.get(), STDERR_FILENO);
  }
  std::string take_all() {
    std::string all(65536, 0);
    const ssize_t got = ::read(reader_.get(), all.data(), all.size());
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }

  const Fd before_{::dup(STDERR_FILENO)};
  Fd reader_;
};

TEST_F(LogTest, WhatNobodyReadsIsLeftOutAndCounted) {
  // More than the pipe holds, and less than the log writes at once.
  for (int i = 0; i < 100; ++i) log_error("line {} {}", i, std::string(100, 'x'));
  const std::string first = take_all();
  EXPECT_TRUE(first.starts_with("error: line 0 ")) << first;
  EXPECT_EQ(first.find("line 99"), std::string::npos);
  log_error("once more");
  const std::string later = take_all();
  EXPECT_NE(later.find("lines were left out"), std::string::npos) << later;
  EXPECT_NE(later.find("error: once more"), std::string::npos) << later;
}

TEST_F(LogTest, NoProgramsNameIsACommandOfTheTerminal) {
  log_warning("process 7 ({}) froze",
              "\x1b]0;x\x07\na\x7f\xc2\x9b"
              "2J \xc3\xa4");
  EXPECT_EQ(take_all(), "warning: process 7 (?]0;x??a??2J \xc3\xa4) froze\n");
}

TEST_F(LogTest, AFloodOfLinesAboutAUsersProcessesHidesNoOthers) {
  ASSERT_GT(::fcntl(reader_.get(), F_SETPIPE_SZ, 65536), 0);  // it takes all of them
  for (int i = 0; i < 100; ++i) log_about(::getpid(), LogLevel::kWarning, "flood {}", i);
  log_about(-1, LogLevel::kWarning, "about one that has ended");
  log_warning("about nobody");
  const std::string all = take_all();
  EXPECT_TRUE(all.contains("warning: flood 0\n")) << all;
  EXPECT_FALSE(all.contains("flood 99")) << all;
  EXPECT_TRUE(all.contains("about one that has ended")) << all;
  EXPECT_TRUE(all.contains("about nobody")) << all;
  EXPECT_TRUE(all.contains("lines were left out")) << all;
}

TEST_F(LogTest, AReaderThatHasGoneEndsNobody) {
  reader_ = Fd();
  log_error("to nobody");
  SUCCEED() << "SIGPIPE would have ended us";
}

}  // namespace
}  // namespace gpushare
