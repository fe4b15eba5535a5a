// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "shmctl/program/temp_folder.h"
#include "shmctl/usage/reader.h"
#include "shmctl/usage/store.h"

namespace gpushare {
namespace {

constexpr WallSeconds kBegin = 1'800'000'000;  // a whole hour

UsageWrite write_of(WallSeconds start, uint64_t used_ms = 4000, const std::string& tenant = "a") {
  UsageWrite what;
  what.start = start;
  what.sample.watched_ms = 10'000;
  what.sample.amounts[{.tenant = tenant, .uid = 1000}] = {.used_ms = used_ms, .entitled_ms = 5000};
  what.jobs[{.name = "run-7", .command = "train", .tenant = tenant, .uid = 1000}] = {.used_ms =
                                                                                         used_ms};
  what.gpus[0] = {.uuid = "GPU-1", .name = "H200"};
  return what;
}

uint64_t used_ms(const UsageHistory& history) {
  uint64_t sum = 0;
  for (const auto& [start, sample] : history.samples)
    for (const auto& [series, amounts] : sample.amounts) sum += amounts.used_ms;
  return sum;
}

class UsageFile : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::make("usage-test");
  const UsageFileOptions options_{.path = folder_.at("usage.db")};

  UsageStore open() {
    auto store = UsageStore::open(options_);
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }
  UsageHistory read(WallSeconds since = kBegin, WallSeconds until = kBegin + 3600) {
    auto history = read_usage(options_.path, {.since = since, .until = until});
    EXPECT_TRUE(history) << history.error().message();
    return history.value_or(UsageHistory{});
  }
};

TEST(UsageCodec, WhatIsWrittenIsRead) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    NumberedSample sample{.watched_ms = random() >> (random() % 64), .amounts = {}};
    for (uint64_t i = random() % 20; i > 0; --i) {
      const auto some = [&] { return random() % 3 == 0 ? 0 : random() >> (random() % 64); };
      sample.amounts[static_cast<uint32_t>(random())] = {some(), some(), some(), some(), some(),
                                                         some(), some(), some(), some()};
    }
    EXPECT_EQ(decode_sample(encode_sample(sample)), sample);
  }
}

TEST(UsageCodec, AnyBytesAreASampleOrNone) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (const auto sample = decode_sample(bytes)) {
      EXPECT_EQ(decode_sample(encode_sample(*sample)), *sample);
    }
  }
  EXPECT_EQ(decode_sample("\xFF"), std::nullopt);
}

TEST_F(UsageFile, ASampleIsInEveryLengthOfTime) {
  UsageStore store = open();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(store.write(write_of(kBegin + 10 * i)));
  const UsageHistory fine = read();
  EXPECT_EQ(fine.step, 10);
  EXPECT_EQ(fine.samples.size(), 60U);
  EXPECT_EQ(used_ms(fine), 240'000U);
  const UsageHistory day = read(kBegin, kBegin + 86'400);
  EXPECT_EQ(day.step, 300);
  EXPECT_EQ(day.samples.size(), 2U);
  EXPECT_EQ(used_ms(day), 240'000U);
  const UsageHistory month = read(kBegin - 86'400 * 30, kBegin + 86'400);
  EXPECT_EQ(month.step, 3600);
  EXPECT_EQ(used_ms(month), 240'000U);
  ASSERT_EQ(month.jobs.size(), 1U);
  EXPECT_EQ(month.jobs[0].amounts.used_ms, 240'000U);
  EXPECT_EQ(fine.gpus.at(0).name, "H200");
}

TEST_F(UsageFile, ATenantIsShownWithThoseBelowItAndNotThoseThatBeginLikeIt) {
  UsageStore store = open();
  for (const char* tenant : {"a", "a/b", "ab"})
    ASSERT_TRUE(store.write(write_of(kBegin, 1, tenant)));
  const auto history = read_usage(
      options_.path, {.since = kBegin, .until = kBegin + 60, .tenant = std::string("a")});
  ASSERT_TRUE(history);
  EXPECT_EQ(used_ms(*history), 2U);
  EXPECT_EQ(history->jobs.size(), 2U);
}

// A clock that was set back makes a time twice: both are counted.
TEST_F(UsageFile, ATimeThatComesTwiceIsAdded) {
  UsageStore store = open();
  for (int i = 0; i < 2; ++i)
    for (int at = 0; at < 6; ++at) ASSERT_TRUE(store.write(write_of(kBegin + 10 * at)));
  const UsageHistory history = read();
  EXPECT_EQ(used_ms(history), 48'000U);
  EXPECT_EQ(history.samples.begin()->second.watched_ms, 20'000U);
}

TEST_F(UsageFile, AClockThatWasInTheNextCenturyLosesNothing) {
  UsageStore store = open();
  ASSERT_TRUE(store.write(write_of(kBegin)));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(store.write(write_of(kBegin + 3'000'000'000 + 10 * i)));
  ASSERT_TRUE(store.write(write_of(kBegin + 10)));
  EXPECT_EQ(used_ms(read()), 8000U);
}

TEST_F(UsageFile, AFileOfANewerLayoutIsLeftAlone) {
  open();
  {
    auto database = Database::open(options_.path);
    ASSERT_TRUE(database);
    ASSERT_TRUE(database->run("PRAGMA user_version=99"));
  }
  const auto store = UsageStore::open(options_);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, std::errc::not_supported);
  const auto history = read_usage(options_.path, {.since = 0, .until = 1});
  ASSERT_FALSE(history);
  EXPECT_NE(history.error().message().find("newer gpushare"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options_.path + ".bad"));
}

TEST_F(UsageFile, ABrokenFileIsSetAsideAndANewOneBegins) {
  {
    UsageStore store = open();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.write(write_of(kBegin + 10 * i)));
  }
  {
    std::fstream file(options_.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(8192, '\x5A');
  }
  UsageStore store = open();
  EXPECT_TRUE(std::filesystem::exists(options_.path + ".bad"));
  ASSERT_TRUE(store.write(write_of(kBegin)));
  EXPECT_EQ(used_ms(read()), 4000U);
}

TEST_F(UsageFile, WhatIsNoDatabaseIsSetAside) {
  std::ofstream(options_.path) << std::string(10'000, 'x');
  UsageStore store = open();
  ASSERT_TRUE(store.write(write_of(kBegin)));
  EXPECT_TRUE(std::filesystem::exists(options_.path + ".bad"));
}

TEST_F(UsageFile, OneWritesAndAnybodyMayRead) {
  UsageStore store = open();
  const auto second = UsageStore::open(options_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
  struct stat about{};
  ASSERT_EQ(::stat(options_.path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0644U);
}

// Any user who may read the file may hold locks on it.
TEST_F(UsageFile, AReadersLocksDoNotKeepTheWriterFromWriting) {
  UsageStore store = open();
  ASSERT_TRUE(store.write(write_of(kBegin)));
  const pid_t child = ::fork();
  if (child == 0) {
    for (const char* suffix : {"", "-wal"}) {
      const int fd = ::open((options_.path + suffix).c_str(), O_RDONLY);
      struct flock all{
          .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
      ::fcntl(fd, F_SETLK, &all);
    }
    ::kill(::getpid(), SIGSTOP);
    ::_exit(0);
  }
  int state = 0;
  ::waitpid(child, &state, WUNTRACED);
  for (int i = 1; i < 1000; ++i) ASSERT_TRUE(store.write(write_of(kBegin + 10 * i)));
  ::kill(child, SIGKILL);
  ::waitpid(child, &state, 0);
  EXPECT_LT(std::filesystem::file_size(options_.path + "-wal"), 4U << 20);
}

TEST_F(UsageFile, NeverExceedsItsLimit) {
  const UsageFileOptions small{.path = options_.path, .most_bytes = kLeastUsageBytes};
  auto store = UsageStore::open(small);
  ASSERT_TRUE(store);
  UsageWrite what = write_of(kBegin);
  for (int tenant = 0; tenant < 1000; ++tenant)
    what.sample.amounts[{.tenant = std::to_string(tenant)}] = {
        .used_ms = 12'345, .entitled_ms = 12'345, .waiting_ms = 12'345};
  for (int i = 0; i < 1200; ++i) {
    what.start = kBegin + 10 * i;
    const auto written = store->write(what);
    ASSERT_TRUE(written) << i << ": " << written.error().message();
  }
  uint64_t size = 0;
  for (const char* suffix : {"", "-wal"})
    size += std::filesystem::file_size(options_.path + suffix);
  EXPECT_LE(size, kLeastUsageBytes);
  const UsageHistory all = read(kBegin, kBegin + 12'000);
  EXPECT_EQ(all.step, 300) << "what is coarser stays";
  EXPECT_EQ(all.samples.size(), 40U);
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
      for (uint32_t i = 0;; ++i) {
        if (!store->write(write_of(kBegin + 10 * (i % 300), 1))) ::_exit(2);
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
  EXPECT_FALSE(std::filesystem::exists(options_.path + ".bad"));
}

TEST_F(UsageFile, IsReadWholeWhileItIsWritten) {
  open();
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = UsageStore::open(options_);
    for (uint32_t i = 0; store && i < 100'000; ++i)
      if (!store->write(write_of(kBegin + 10 * (i % 300), 1))) break;
    ::_exit(1);
  }
  uint64_t before = 0;
  for (int looks = 0; looks < 50; ++looks) {
    const UsageHistory history = read();
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
}  // namespace gpushare
