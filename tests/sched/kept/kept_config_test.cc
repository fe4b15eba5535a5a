// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/kept_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>

#include "shmctl/program/temp_folder.h"
#include "tests/sched/support/policies.h"

namespace gpushare {
namespace {

// A disk that takes as long as the test wants.
struct Disk {
  std::latch may_write{1};
  std::mutex mutex;
  int begun = 0, done = 0;

  void keep() {
    {
      const std::lock_guard lock(mutex);
      ++begun;
      EXPECT_EQ(begun, done + 1) << "one at a time";
    }
    may_write.wait();
    const std::lock_guard lock(mutex);
    ++done;
  }
  int has_done() {
    const std::lock_guard lock(mutex);
    return done;
  }
};

TEST(ConfigKeeper, ADiskThatHangsHoldsUpNobody) {
  const auto disk = std::make_shared<Disk>();
  {
    ConfigKeeper keeper([disk] { disk->keep(); });
    for (int i = 0; i < 3; ++i) keeper.ask();  // each returns although nothing is written
    EXPECT_EQ(disk->has_done(), 0);
    disk->may_write.count_down();
    while (disk->has_done() < 2) {
      keeper.advance();
      std::this_thread::yield();
    }
    keeper.ask();
  }
  EXPECT_EQ(disk->has_done(), 3) << "what was asked for meanwhile is one more, and so is the last";
}

TEST(KeptConfig, IsACopyOfTheLastCorrectFile) {
  const TempFolder folder = TempFolder::make("gpushare-kept").value();
  const std::string path = folder.at("gpushare.toml"), kept = folder.at("kept");
  const auto text_of = [](const std::string& file) {
    std::ifstream from(file);
    return std::string(std::istreambuf_iterator<char>(from), {});
  };
  const auto keep = [&] { keep_config(path, kept, test::every_policy()); };
  std::ofstream(path) << "[tenant.a]\nweight = 3\n";
  keep();
  EXPECT_EQ(text_of(kept), "[tenant.a]\nweight = 3\n");
  std::ofstream(path) << "[tenant.a]\nweight = 0\n";
  keep();
  EXPECT_EQ(text_of(kept), "[tenant.a]\nweight = 3\n") << "it is not correct";
  std::filesystem::remove(path);
  keep();
  EXPECT_FALSE(std::filesystem::exists(kept));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing is left";
}

}  // namespace
}  // namespace gpushare
