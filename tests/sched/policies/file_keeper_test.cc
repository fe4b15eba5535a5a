// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/file_keeper.h"

#include <gtest/gtest.h>

#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "sched/policies/length_store.h"
#include "sched/slo/knees/store.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// A disk that takes as long as the test wants.
struct Disk {
  std::latch may_write{1};
  std::mutex mutex;
  std::vector<std::string> written;

  Result<> write(const std::string& text) {
    may_write.wait();
    const std::lock_guard lock(mutex);
    written.push_back(text);
    return {};
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return written.size();
  }
};

using Keeper = gpushare::FileKeeper<KneeStore>;
constexpr Time kNow{1h};
constexpr KnownKnee kKnee{.knee = 3, .widest = 15, .is_bounded = false};

TEST(FileKeeper, ADiskThatHangsDoesNotHoldUpTheAgent) {
  const TempFolder folder = TempFolder::make("gpushare-knees").value();
  const auto disk = std::make_shared<Disk>();
  {
    Keeper keeper(
        [disk](const std::string&, const std::string& text) { return disk->write(text); });
    keeper.open(folder.at("knees.json"));
    keeper.store()->put("first", "H200", kKnee);
    keeper.save(kNow);  // returns although nothing is written
    EXPECT_EQ(disk->count(), 0u);
    keeper.store()->put("second", "H200", kKnee);
    keeper.save(kNow);
    disk->may_write.count_down();
    while (disk->count() < 2) {
      keeper.save(kNow);
      std::this_thread::yield();
    }
    EXPECT_EQ(disk->written[0].find("second"), std::string::npos);
    EXPECT_NE(disk->written[1].find("second"), std::string::npos);
    keeper.store()->put("third", "H200", kKnee);
  }
  ASSERT_EQ(disk->count(), 3u) << "what was not saved is written at the end";
  EXPECT_NE(disk->written[2].find("third"), std::string::npos);
}

TEST(FileKeeper, WhatCouldNotBeWrittenIsWrittenLater) {
  const TempFolder folder = TempFolder::make("gpushare-knees").value();
  const auto attempts = std::make_shared<std::atomic<int>>(0);
  Keeper keeper([attempts](const std::string& path, const std::string& text) -> Result<> {
    if (++*attempts == 1) return make_error(std::errc::no_space_on_device, "write", path);
    return KneeStore::write(path, text);
  });
  const std::string path = folder.at("knees.json");
  keeper.open(path);
  keeper.store()->put("first", "H200", kKnee);
  keeper.save(kNow);
  while (*attempts < 2) {
    keeper.store()->put("second", "H200", kKnee);
    keeper.save(kNow);
    std::this_thread::yield();
  }
  const auto has_both = [&] {
    auto store = KneeStore::open(path);
    return store && store->find("first", "H200") && store->find("second", "H200");
  };
  while (!has_both()) std::this_thread::yield();
}

TEST(FileKeeper, ShortJobsDoNotKeepTheDiskBusy) {
  const TempFolder folder = TempFolder::make("gpushare-lengths").value();
  const auto disk = std::make_shared<Disk>();
  disk->may_write.count_down();
  {
    gpushare::FileKeeper<LengthStore> keeper(
        [disk](const std::string&, const std::string& text) { return disk->write(text); });
    keeper.open(folder.at("jobs.csv"));
    for (Time now = kNow; now < kNow + 2 * LengthStore::kLeastPause; now += 100ms) {
      const std::size_t before = disk->count();
      keeper.store()->history().add("train", 1s);
      keeper.save(now);
      // The writing before may not have been answered yet, though its row is there.
      while ((now - kNow) % LengthStore::kLeastPause == 0s && disk->count() == before) {
        keeper.save(now);
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(disk->count(), 2u);
  }
  EXPECT_EQ(disk->count(), 3u) << "the rest is written at the end";
}

}  // namespace
}  // namespace gpushare
