// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/length_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "sched/orders/trace.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class LengthStoreTest : public ::testing::Test {
 protected:
  LengthStore open() { return LengthStore::open(path_).value(); }
  void put(std::string_view text) { std::ofstream(path_) << text; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void save(LengthStore& store) {
    ASSERT_TRUE(LengthStore::write(path_, store.take_text().value()));
  }

  const TempFolder folder_ = TempFolder::make("gpushare-jobs").value();
  const std::string path_ = folder_.at("jobs.csv");
};

TEST_F(LengthStoreTest, WhatOneAgentLearntTheNextOneKnows) {
  LengthStore store = open();
  EXPECT_FALSE(store.take_save_request());
  const LengthHistory::Finished job{.command = "00ff00ff00ff00ff",
                                    .length = 12'345'678'901ns,
                                    .name = "run-4711",
                                    .arrived = 1'795'000'000s,
                                    .iterations = 1200,
                                    .memory_bytes = 3 << 20,
                                    .gpus = 2,
                                    .user = 1000};
  store.history().add(job);
  EXPECT_TRUE(store.take_save_request());
  save(store);
  EXPECT_FALSE(store.take_save_request()) << "the file has it";
  LengthStore next = open();
  ASSERT_EQ(next.history().all().size(), 1u);
  EXPECT_EQ(next.history().all().front(), job);
  EXPECT_EQ(next.history().median("00ff00ff00ff00ff"), job.length);
  EXPECT_FALSE(next.take_save_request());
}

// A month's training in which no iteration is recognised, a job of a nanosecond, and numbers that a
// program has written into its slot.
TEST_F(LengthStoreTest, WhatNoTraceMayHoldDoesNotCostTheOthers) {
  LengthStore store = open();
  const LengthHistory::Finished odd[] = {
      {.command = "month", .length = 24h * 30},
      {.command = "short", .length = 1ns, .iterations = 5},
      {.command = "liar", .length = 100ms, .arrived = Nanos::max(), .iterations = 1ULL << 41},
      {.command = "huge", .length = Nanos::max(), .iterations = ~0ULL, .memory_bytes = ~0ULL},
      {.command = "wide", .length = 1s, .arrived = Nanos::min(), .gpus = 4000},
  };
  for (const LengthHistory::Finished& job : odd) store.history().add(job);
  store.history().add("honest", 90s);
  save(store);
  LengthStore next = open();
  ASSERT_EQ(next.history().all().size(), std::size(odd) + 1) << text();
  EXPECT_EQ(next.history().median("honest"), 90s);
  EXPECT_EQ(next.history().median("month"), 24h * 30);
  EXPECT_EQ(next.history().median("liar"), 100ms);
}

TEST_F(LengthStoreTest, TheFileIsATraceForTheReplay) {
  LengthStore store = open();
  store.history().add({.command = "c", .length = 90s, .name = "run-1", .arrived = 7s});
  save(store);
  const TraceJobs jobs = read_trace(path_).value();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0], (TraceJob{.name = "run-1", .model = "c", .submit = 7s, .length = 90s}));
}

TEST_F(LengthStoreTest, OnlyRootReadsIt) {
  put("");
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  std::ofstream(path_ + ".new") << "left by one that died";
  LengthStore store = open();
  store.history().add("c", 1s);
  const mode_t mask = ::umask(0);
  save(store);
  ::umask(mask);
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_NE(::access((path_ + ".new").c_str(), F_OK), 0);
}

TEST_F(LengthStoreTest, HoldsTheNewestJobsHoweverManyThereWere) {
  LengthStore store = open();
  for (int i = 1; i <= 2000; ++i)
    store.history().add({.command = "c", .length = Nanos(i), .arrived = Nanos(1s) * i});
  save(store);
  EXPECT_LT(text().size(), 100'000u);
  LengthStore next = open();
  EXPECT_EQ(next.history().all().size(), LengthHistory::kMost);
  EXPECT_EQ(next.history().all().back().length, Nanos(2000));
  std::string longer = text();
  for (int i = 0; i < 1000; ++i) longer += "x,99999,c,1,1,0,0,1000,1,\n";
  put(longer);
  EXPECT_EQ(open().history().all().size(), LengthHistory::kMost);
}

TEST_F(LengthStoreTest, AFileThatIsNoneIsSetAsideAndNothingStops) {
  for (const std::string& wrong :
       {std::string("hello\n"), std::string("\0\0\0\0", 4), std::string("\xff\xfe,\n"),
        std::string("job,submit_s,iterations,iteration_us\nrun-1,1,1\n"),
        std::string("job,submit_s,iterations,iteration_us\nrun-1,1,-1,5\n"),
        std::string("job,submit_s,iterations,iteration_us\n\"run-1,1,1,5\n"),
        std::string(2 << 20, '#')}) {
    put(wrong);
    LengthStore store = open();
    EXPECT_TRUE(store.history().all().empty());
    std::ifstream aside(path_ + ".bad");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(aside), {}), wrong);
    EXPECT_NE(::access(path_.c_str(), F_OK), 0);
    store.history().add("c", 1s);
    save(store);
    EXPECT_EQ(open().history().all().size(), 1u);
  }
}

TEST_F(LengthStoreTest, APipeOrAFolderInItsPlaceIsAnErrorAndKeepsNobodyWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto pipe = LengthStore::open(path_);
  ASSERT_FALSE(pipe);
  EXPECT_THAT(pipe.error().message(), HasSubstr(path_ + " is no regular file"));
  EXPECT_FALSE(LengthStore::open(folder_.path()));
  EXPECT_FALSE(LengthStore::write(folder_.at("missing/jobs.csv"), "text"));
}

}  // namespace
}  // namespace gpushare
