// SPDX-License-Identifier: Apache-2.0
// What is written is read: of every length of time, from every layout, and by anybody.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/shmctl/usage/usage_rig.h"

namespace gpushare::test {
namespace {

TEST_F(UsageFile, ASampleIsInEveryLengthOfTime) {
  UsageStore store = open();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(store.write(write_of(at(i))));
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
    for (int step = 0; step < 6; ++step) ASSERT_TRUE(store.write(write_of(at(step))));
  const UsageHistory history = read();
  EXPECT_EQ(used_ms(history), 48'000U);
  EXPECT_EQ(history.samples.begin()->second.watched_ms, 20'000U);
}

TEST_F(UsageFile, AClockThatWasInTheNextCenturyLosesNothing) {
  UsageStore store = open();
  ASSERT_TRUE(store.write(write_of(kBegin)));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(store.write(write_of(3'000'000'000 + at(i))));
  ASSERT_TRUE(store.write(write_of(kBegin + 10)));
  EXPECT_EQ(used_ms(read()), 8000U);
}

TEST_F(UsageFile, WhatIsPackedIsAddedToAndRead) {
  {
    UsageStore store = open();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.write(write_of(at(i))));
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(store.write(write_of(at(i), 1)));
  }
  EXPECT_GT(ask("SELECT count(*) FROM packs WHERE tier=0"), 10);
  EXPECT_LE(ask("SELECT count(*) FROM samples"), 40);
  const UsageHistory history = read();
  EXPECT_EQ(history.step, 10);
  EXPECT_EQ(history.samples.size(), 100U);
  EXPECT_EQ(used_ms(history), 400'030U);
  EXPECT_EQ(history.samples.at(kBegin + 290).watched_ms, 20'000U);
  EXPECT_EQ(history.samples.at(kBegin + 300).watched_ms, 10'000U);
  const UsageHistory part = read(kBegin + 200, kBegin + 400);
  EXPECT_EQ(part.samples.size(), 20U);
  EXPECT_EQ(used_ms(part), 80'010U);
}

// A tenant for each job, as under Slurm: the names of those that no sample has any more go.
TEST_F(UsageFile, SeriesThatNothingNamesGo) {
  write_samples(60);
  change(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<25000) "
      "INSERT INTO series(tenant,uid,gpu,priority) SELECT 'slurm/' || i, 0, 0, 1 FROM n");
  {
    UsageStore store = open();
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(store.write(write_of(at(60 + i))));
  }
  EXPECT_EQ(ask("SELECT count(*) FROM series"), 1);
  EXPECT_EQ(used_ms(read()), 480'000U);
}

// As the version before packs left it; also when it is full.
TEST_F(UsageFile, AFileOfTheFirstLayoutIsTakenOver) {
  for (const bool is_full : {false, true}) {
    std::filesystem::remove(options_.path);
    std::filesystem::remove(options_.path + "-wal");
    UsageFileOptions options{.path = options_.path, .most_bytes = kLeastUsageBytes};
    options.pack_samples = 1'000'000;
    {
      auto store = UsageStore::open(options);
      ASSERT_TRUE(store);
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(store->write(write_of(at(i))));
    }
    {
      auto database = Database::open(options_.path);
      ASSERT_TRUE(database);
      ASSERT_TRUE(database->run("DROP TABLE packs; PRAGMA user_version=1"));
      // More than the limit leaves to it, beside its log.
      NumberedSample large{.watched_ms = 10'000, .amounts = {}};
      for (uint32_t series = 0; series < 375; ++series)
        large.amounts[series] = {.used_ms = uint64_t{1'000'000'000'000} + series};
      const std::string bytes = encode_sample(large);
      auto insertion = database->prepare("INSERT INTO samples VALUES(0,?,?)");
      ASSERT_TRUE(insertion);
      for (int i = 0; is_full && i < 1700; ++i) {
        insertion->bind(0, int64_t{i} * 10);
        insertion->bind_bytes(1, bytes);
        ASSERT_TRUE(insertion->run());
      }
    }
    EXPECT_EQ(used_ms(read()), 400'000U) << "by who does not write it";
    options.pack_samples = 7;
    auto store = UsageStore::open(options);
    ASSERT_TRUE(store) << store.error().message();
    for (int i = 100; i < 300; ++i) {
      const auto written = store->write(write_of(at(i)));
      ASSERT_TRUE(written) << i << ": " << written.error().message();
    }
    EXPECT_EQ(used_ms(read()), 1'200'000U);
    EXPECT_GT(ask("SELECT count(*) FROM packs"), 10);
    EXPECT_LE(std::filesystem::file_size(options_.path), kLeastUsageBytes);
  }
}

TEST_F(UsageFile, APackThatIsBrokenIsLeftOutAndSaid) {
  write_samples(100);
  change("UPDATE packs SET data=substr(data,1,10)||x'5A5A'||substr(data,13) WHERE id=2");
  UsageStore store = open();
  ASSERT_TRUE(store.write(write_of(kBegin + 1000)));
  const UsageHistory history = read();
  EXPECT_EQ(history.broken, 7U);
  EXPECT_EQ(history.samples.size(), 94U);
  EXPECT_FALSE(std::filesystem::exists(options_.path + ".bad"));
}

TEST_F(UsageFile, AFileOfANewerLayoutIsLeftAlone) {
  open();
  change("PRAGMA user_version=99");
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
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.write(write_of(at(i))));
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
  for (int i = 1; i < 1000; ++i) ASSERT_TRUE(store.write(write_of(at(i))));
  ::kill(child, SIGKILL);
  ::waitpid(child, &state, 0);
  EXPECT_LT(std::filesystem::file_size(options_.path + "-wal"), 4U << 20);
}

}  // namespace
}  // namespace gpushare::test
