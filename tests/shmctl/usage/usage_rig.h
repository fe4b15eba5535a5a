// SPDX-License-Identifier: Apache-2.0
// A file of the usage history in a folder of its own, and what is written to it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "shmctl/program/temp_folder.h"
#include "shmctl/usage/reader.h"
#include "shmctl/usage/store.h"

namespace gpushare::test {

inline constexpr WallSeconds kBegin = 1'800'000'000;  // a whole hour
constexpr WallSeconds at(int64_t sample) { return kBegin + 10 * sample; }

inline UsageWrite write_of(WallSeconds start, uint64_t used_ms = 4000,
                           const std::string& tenant = "a") {
  UsageWrite what;
  what.start = start;
  what.sample.watched_ms = 10'000;
  what.sample.amounts[{.tenant = tenant, .uid = 1000}] = {.used_ms = used_ms, .entitled_ms = 5000};
  what.jobs[{.name = "run-7", .command = "train", .tenant = tenant, .uid = 1000}] = {.used_ms =
                                                                                         used_ms};
  what.gpus[0] = {.uuid = "GPU-1", .name = "H200"};
  return what;
}

inline uint64_t used_ms(const UsageHistory& history) {
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

}  // namespace gpushare::test
