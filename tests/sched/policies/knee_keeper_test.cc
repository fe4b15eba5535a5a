// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/knee_keeper.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// A disk that takes as long as the test wants.
struct Disk {
  std::promise<void> may_write;
  std::shared_future<void> gate = may_write.get_future().share();
  std::mutex mutex;
  std::vector<std::string> written;

  Result<> write(const std::string& text) {
    gate.wait();
    const std::lock_guard lock(mutex);
    written.push_back(text);
    return {};
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return written.size();
  }
};

constexpr KnownKnee kKnee{.knee = 3, .widest = 15, .is_bounded = false};

TEST(KneeKeeperTest, ADiskThatHangsDoesNotHoldUpTheAgent) {
  const TempFolder folder = TempFolder::make("gpushare-knees").value();
  const auto disk = std::make_shared<Disk>();
  {
    KneeKeeper keeper(
        [disk](const std::string&, const std::string& text) { return disk->write(text); });
    keeper.open(folder.at("knees.json"));
    keeper.store()->put("first", "H200", kKnee);
    keeper.save();  // returns although nothing is written
    EXPECT_EQ(disk->count(), 0u);
    keeper.store()->put("second", "H200", kKnee);
    keeper.save();
    disk->may_write.set_value();
    while (disk->count() < 2) {
      keeper.save();
      std::this_thread::yield();
    }
    EXPECT_EQ(disk->written[0].find("second"), std::string::npos);
    EXPECT_NE(disk->written[1].find("second"), std::string::npos);
    keeper.store()->put("third", "H200", kKnee);
  }
  ASSERT_EQ(disk->count(), 3u) << "what was not saved is written at the end";
  EXPECT_NE(disk->written[2].find("third"), std::string::npos);
}

TEST(KneeKeeperTest, WhatCouldNotBeWrittenIsWrittenLater) {
  const TempFolder folder = TempFolder::make("gpushare-knees").value();
  const auto attempts = std::make_shared<std::atomic<int>>(0);
  KneeKeeper keeper([attempts](const std::string& path, const std::string& text) -> Result<> {
    if (++*attempts == 1) return make_error(std::errc::no_space_on_device, "write", path);
    return KneeStore::write(path, text);
  });
  const std::string path = folder.at("knees.json");
  keeper.open(path);
  keeper.store()->put("first", "H200", kKnee);
  keeper.save();
  while (*attempts < 2) {
    keeper.store()->put("second", "H200", kKnee);
    keeper.save();
    std::this_thread::yield();
  }
  const auto has_both = [&] {
    auto store = KneeStore::open(path);
    return store && store->find("first", "H200") && store->find("second", "H200");
  };
  while (!has_both()) std::this_thread::yield();
}

}  // namespace
}  // namespace gpushare
