// SPDX-License-Identifier: Apache-2.0
// How large the file becomes, what goes first when it is full, and what a full disk does.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>

#include "tests/shmctl/usage/usage_rig.h"

namespace gpushare::test {
namespace {

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

// An operator lowers usage_mib.
TEST_F(UsageFile, ALowerLimitHoldsForAFileThatIsThere) {
  const auto write = [&](uint64_t most_bytes, int from, int count) {
    auto store = UsageStore::open({.path = options_.path, .most_bytes = most_bytes});
    ASSERT_TRUE(store) << store.error().message();
    UsageWrite what = write_of(kBegin);
    std::mt19937 random(5);
    for (int i = from; i < from + count; ++i) {
      what.start = at(i);
      for (int tenant = 0; tenant < 1000; ++tenant)
        what.sample.amounts[{.tenant = std::to_string(tenant)}] = {.used_ms = random(),
                                                                   .waiting_ms = random()};
      const auto written = store->write(what);
      ASSERT_TRUE(written) << i << ": " << written.error().message();
    }
  };
  const auto size = [&] { return std::filesystem::file_size(options_.path); };
  write(4 * kLeastUsageBytes, 0, 1000);
  ASSERT_GT(size(), kLeastUsageBytes);
  write(kLeastUsageBytes, 1000, 10);
  EXPECT_LE(size(), kLeastUsageBytes);
  EXPECT_EQ(read(at(1005), at(1010)).samples.size(), 5U) << "the newest are there";
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

TEST_F(UsageFile, IsKeptSmallByWritersThatLiveForOneWrite) {
  for (int i = 0; i < 120; ++i) {
    UsageStore store = open();
    ASSERT_TRUE(store.write(write_of(at(i))));
  }
  EXPECT_GT(ask("SELECT count(*) FROM packs"), 5);
  EXPECT_EQ(read().samples.size(), 120U);
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
}  // namespace gpushare::test
