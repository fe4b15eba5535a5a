// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>

#include "shmctl/program/temp_folder.h"
#include "shmctl/usage/pack.h"
#include "shmctl/usage/reader.h"
#include "shmctl/usage/store.h"
#include "tests/shmctl/plane/stepped_child.h"

namespace gpushare {
namespace {

constexpr WallSeconds kBegin = 1'800'000'000;  // a whole hour
constexpr WallSeconds at(int64_t sample) { return kBegin + 10 * sample; }

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
  // Packs are so small that every test has some.
  const UsageFileOptions options_{.path = folder_.at("usage.db"), .pack_samples = 7};

  // What the file answers to a question of SQL.
  int64_t ask(const char* sql) {
    auto database = Database::open(options_.path);
    const auto answer = database ? database->ask(sql) : Result<int64_t>(-1);
    EXPECT_TRUE(answer) << answer.error().message();
    return answer.value_or(-1);
  }

  // Changes the file, which nobody writes meanwhile.
  void change(const char* sql) const {
    auto database = Database::open(options_.path);
    ASSERT_TRUE(database);
    ASSERT_TRUE(database->run(sql));
  }
  void write_samples(int count) {
    UsageStore store = open();
    for (int i = 0; i < count; ++i) ASSERT_TRUE(store.write(write_of(at(i))));
  }

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

NumberedSamples samples_like_measured_ones(std::mt19937_64& random, uint32_t count) {
  NumberedSamples samples;
  WallSeconds start = static_cast<WallSeconds>(random() % 3) * kBegin - 1000;
  for (uint32_t i = 0; i < count; ++i) {
    NumberedSample& sample = samples[start += 1 + static_cast<WallSeconds>(random() % 20)];
    sample.watched_ms = 10'000 - random() % 3;
    for (uint32_t series = 0; series < 40; ++series) {
      if (random() % 4 == 0) continue;
      const auto some = [&](uint64_t most) {
        return random() % 9 == 0 ? random() : random() % most;
      };
      sample.amounts[series * series] = {.used_ms = 1 + some(40),
                                         .entitled_ms = uint64_t{100} * i,
                                         .waiting_ms = series % 2 == 0 ? some(2000) : 0,
                                         .p99_us = series == 7 ? 70'000 + some(400) : 0,
                                         .target_us = series == 7 ? 80'000U : 0};
    }
  }
  return samples;
}

TEST(UsagePack, WhatIsPackedIsUnpacked) {
  std::mt19937_64 random(3);
  for (const uint32_t count : {1U, 2U, 7U, 180U}) {
    const NumberedSamples samples = samples_like_measured_ones(random, count);
    EXPECT_EQ(decode_pack(encode_pack(samples)), samples);
  }
  EXPECT_EQ(decode_pack(encode_pack({{-7, {.watched_ms = UINT64_MAX, .amounts = {}}}})),
            (NumberedSamples{{-7, {.watched_ms = UINT64_MAX, .amounts = {}}}}));
}

TEST(UsagePack, AByteThatIsWrongIsNoticed) {
  std::mt19937_64 random(4);
  const std::string good = encode_pack(samples_like_measured_ones(random, 20));
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    char& byte = bytes[random() % bytes.size()];
    byte = static_cast<char>(byte ^ (1 << random() % 8));
    EXPECT_EQ(decode_pack(bytes), std::nullopt);
    EXPECT_EQ(decode_pack(std::string_view(good).substr(0, random() % good.size())), std::nullopt);
  }
}

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

// 64 MiB hold a week of 400 series, 60,480 samples of ten seconds, beside the log, the jobs, and
// what is coarser. A tenth of the series shows what a pack takes of each.
TEST_F(UsageFile, AWeekOfFiftyTenantsOnEightGpusFits) {
  auto store = UsageStore::open({.path = options_.path});
  ASSERT_TRUE(store);
  std::mt19937 random(5);
  const auto write = [&](int count) {
    static WallSeconds start = kBegin;
    for (; count > 0; --count, start += 10) {
      UsageWrite what;
      what.start = start;
      what.sample.watched_ms = 10'000;
      for (int64_t tenant = 0; tenant < 5; ++tenant)
        for (uint32_t gpu = 0; gpu < 8; ++gpu)
          what.sample.amounts[{.tenant = std::to_string(tenant), .uid = tenant, .gpu = gpu}] = {
              .used_ms = 180 + random() % 40,
              .entitled_ms = 200,
              .waiting_ms = 9700 + random() % 100};
      ASSERT_TRUE(store->write(what));
    }
  };
  const auto bytes_of_packs = [&] {
    return ask("SELECT sum(length(data)) FROM packs WHERE tier=0");
  };
  write(1000);
  const int64_t before = bytes_of_packs();
  write(1800);  // ten packs
  EXPECT_LE((bytes_of_packs() - before) * 10 / 1800 * 60'480, 42 << 20);
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

TEST_F(UsageFile, NeverExceedsItsLimit) {
  const UsageFileOptions small{.path = options_.path, .most_bytes = kLeastUsageBytes};
  auto store = UsageStore::open(small);
  ASSERT_TRUE(store);
  UsageWrite what = write_of(kBegin);
  for (int tenant = 0; tenant < 1000; ++tenant)
    what.sample.amounts[{.tenant = std::to_string(tenant)}] = {
        .used_ms = 12'345, .entitled_ms = 12'345, .waiting_ms = 12'345};
  for (int i = 0; i < 1200; ++i) {
    what.start = at(i);
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

// A hundred thousand jobs of which each has one use of each length.
class UsageOfShortJobs : public UsageFile {
 protected:
  static constexpr int kJobs = 100'000, kJobsOfAWrite = 50;
  void write_jobs(UsageStore& store, int tenants) {
    std::mt19937 random(5);
    int job = 0;
    for (int i = 0; i < kJobs / kJobsOfAWrite; ++i) {
      UsageWrite what = write_of(at(i));
      for (int tenant = 0; tenant < tenants; ++tenant)
        what.sample.amounts[{.tenant = std::to_string(tenant)}] = {
            .used_ms = random() % 10'000, .entitled_ms = 200, .waiting_ms = random() % 10'000};
      for (int n = 0; n < kJobsOfAWrite; ++n, ++job)
        what.jobs[{.name = "run-" + std::to_string(1'000'000 + job % 7 * 500'000 + job),
                   .command = "simulate",
                   .tenant = "lab",
                   .uid = 1000}] = {.used_ms = 4000, .waiting_ms = 200};
      const auto written = store.write(what);
      ASSERT_TRUE(written) << i << ": " << written.error().message();
    }
  }
};

TEST_F(UsageOfShortJobs, TakeWhatTheyAreCountedFor) {
  auto store = UsageStore::open({.path = options_.path});
  ASSERT_TRUE(store);
  write_jobs(*store, 0);
  EXPECT_GE(ask("SELECT count(*) FROM jobs"), kJobs / 2);
  auto database = Database::open(options_.path);
  ASSERT_TRUE(database);
  const double counted = static_cast<double>(bytes_of_jobs(*database).value_or(0));
  const auto taken =
      static_cast<double>(ask("SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%job%'"));
  EXPECT_NEAR(counted / taken, 1, 0.1) << taken;
}

TEST_F(UsageOfShortJobs, GoBeforeSamples) {
  auto store = UsageStore::open({.path = options_.path, .most_bytes = kLeastUsageBytes});
  ASSERT_TRUE(store);
  write_jobs(*store, 300);
  constexpr int kSamples = kJobs / kJobsOfAWrite;
  EXPECT_EQ(ask("SELECT (SELECT count(*) FROM samples WHERE tier=0) + "
                "(SELECT ifnull(sum(count),0) FROM packs WHERE tier=0)"),
            kSamples);
  EXPECT_GT(ask("SELECT sum(length(data)) FROM packs WHERE tier=0"), kLeastUsageBytes / 4);
  EXPECT_EQ(ask("SELECT count(*) FROM job_use WHERE job NOT IN (SELECT id FROM jobs)"), 0);
  EXPECT_GT(ask("SELECT count(*) FROM job_use"), 1000) << "the latest stay";
}

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

TEST_F(UsageFile, IsKeptSmallByWritersThatLiveForOneWrite) {
  for (int i = 0; i < 120; ++i) {
    UsageStore store = open();
    ASSERT_TRUE(store.write(write_of(at(i))));
  }
  EXPECT_GT(ask("SELECT count(*) FROM packs"), 5);
  EXPECT_EQ(read().samples.size(), 120U);
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

// A file system of its own, which is too small, or which another program fills.
class UsageOnASmallDisk : public UsageFile {
 protected:
  // Runs in a child, whose exit is 1 for false and 77 where nothing can be mounted.
  int exit_on_disk(const char* options, const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
          ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("none", folder_.path().c_str(), "tmpfs", 0, options) != 0)
        ::_exit(77);
      ::_exit(body() ? 0 : 1);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }
  bool is_written(UsageStore& store, int i) {
    const auto written = store.write(write_of(at(i), 1));
    if (!written) std::fprintf(stderr, "%d: %s\n", i, written.error().message().c_str());
    return written.has_value();
  }
};

TEST_F(UsageOnASmallDisk, WhatAnotherProgramFillsIsWrittenAgainWhenThereIsRoom) {
  const int exit = exit_on_disk("size=4m", [&] {
    std::optional<UsageStore> store(open());
    int i = 0;
    for (; i < 50; ++i)
      if (!is_written(*store, i)) return false;
    const std::string filling = folder_.at("filling");
    std::ofstream(filling) << std::string(8 << 20, 'x');
    // What is in the log already takes some more.
    while (store->write(write_of(at(i), 1)))
      if (++i > 10'000) return false;
    store.reset();
    if (const auto read = read_usage(options_.path, {.since = kBegin, .until = kBegin + 100'000});
        read && used_ms(*read) != static_cast<uint64_t>(i))
      return false;
    std::filesystem::remove(filling);
    store.emplace(open());
    const int end = i + 50;
    for (; i < end; ++i)
      if (!is_written(*store, i)) return false;
    return used_ms(read(kBegin, kBegin + 1'000'000)) == static_cast<uint64_t>(end);
  });
  if (exit == 77) GTEST_SKIP() << "no file system can be mounted";
  EXPECT_EQ(exit, 0);
}

TEST_F(UsageOnASmallDisk, ADiskThatIsSmallerThanTheLimitHoldsTheLatest) {
  const int exit = exit_on_disk("size=3m", [&] {
    UsageStore store = open();
    UsageWrite what = write_of(kBegin);
    std::mt19937 random(8);
    for (int i = 0; i < 900; ++i) {
      what.start = at(i);
      for (int tenant = 0; tenant < 200; ++tenant)
        what.sample.amounts[{.tenant = std::to_string(tenant)}] = {.used_ms = random(),
                                                                   .entitled_ms = random()};
      if (const auto written = store.write(what); !written) {
        std::fprintf(stderr, "%d: %s\n", i, written.error().message().c_str());
        return false;
      }
    }
    const UsageHistory first = read(kBegin, kBegin + 300),
                       last = read(kBegin + 8400, kBegin + 9000);
    if (first.samples.size() < 30 && last.samples.size() == 60) return true;
    std::fprintf(stderr, "first %zu of 30 samples, last %zu of 60\n", first.samples.size(),
                 last.samples.size());
    return false;
  });
  if (exit == 77) GTEST_SKIP() << "no file system can be mounted";
  EXPECT_EQ(exit, 0);
}

}  // namespace
}  // namespace gpushare
