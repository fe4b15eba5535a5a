// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/roster_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "sched/policies/file_keeper.h"
#include "sched/tenants/tenants.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class RosterStoreTest : public ::testing::Test {
 protected:
  // The weight that the tenant `a` has in what the file gives; 0: it has none.
  uint32_t weight_in_file() {
    const auto region = std::make_unique<Region>();
    Roster roster(*region);
    if (const auto taken = take_kept_roster(path_, roster); !taken || !*taken) return 0;
    const Tenants tenants(&roster);
    const auto slot = tenants.find("a");
    return slot ? tenants.at(*slot)->settings.weight : 0;
  }
  void set(const std::string& weight) {
    const std::vector<Setting> settings{{"weight", weight}};
    ASSERT_TRUE(tenants_.set("a", settings, /*create=*/true));
  }
  bool is_kept_aside() const { return std::filesystem::exists(path_ + ".bad"); }

  const TempFolder folder_ = TempFolder::make("gpushare-roster").value();
  const std::string path_ = folder_.at("deeper/roster.json");
  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  Roster roster_{*region_};
  Tenants tenants_{&roster_};
};

TEST_F(RosterStoreTest, TheFileFollowsTheRosterAndIsRootsAlone) {
  Time now{1h};
  {
    FileKeeper<RosterStore> keeper;
    keeper.open(path_);
    keeper.store()->follow(roster_);
    for (const char* weight : {"70", "80"}) {
      set(weight);
      while (weight_in_file() != tenants_.at(*tenants_.find("a"))->settings.weight) {
        keeper.save(now += 1s);
        std::this_thread::yield();
      }
    }
    struct stat file{};
    ASSERT_EQ(::stat(path_.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 07777, 0600u);
    set("90");
  }
  EXPECT_EQ(weight_in_file(), 90u) << "what was not saved is written at the end";
  EXPECT_TRUE(forget_kept_roster(path_));
  EXPECT_TRUE(forget_kept_roster(path_)) << "once more does no harm";
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(take_kept_roster(path_, roster_).value());
}

TEST_F(RosterStoreTest, WhatIsNotUnderstoodIsKeptAside) {
  std::filesystem::create_directories(folder_.at("deeper"));
  set("70");
  ASSERT_TRUE(RosterStore::write(path_, roster_.copy()));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  const auto region = std::make_unique<Region>();
  Roster roster(*region);
  EXPECT_FALSE(take_kept_roster(path_, roster));
  EXPECT_EQ(roster.copy().tenants.size(), 0u);
  EXPECT_TRUE(is_kept_aside());
  EXPECT_FALSE(std::filesystem::exists(path_));

  std::filesystem::remove(path_ + ".bad");
  std::ofstream(path_) << R"({"format": 1, "tenants":
      [{"name": "a", "kept": true, "settings": {"weight": 70, "colour": "red"}}]})";
  EXPECT_EQ(weight_in_file(), 70u);
  EXPECT_TRUE(is_kept_aside()) << "it has more than was understood";
}

TEST_F(RosterStoreTest, AFileThatOthersMayWriteIsNotTaken) {
  std::filesystem::create_directories(folder_.at("deeper"));
  set("70");
  ASSERT_TRUE(RosterStore::write(path_, roster_.copy()));
  ASSERT_EQ(::chmod(path_.c_str(), 0620), 0);
  const auto region = std::make_unique<Region>();
  Roster roster(*region);
  EXPECT_EQ(take_kept_roster(path_, roster).error().code, std::errc::operation_not_permitted);
  EXPECT_TRUE(is_kept_aside());
}

}  // namespace
}  // namespace gpushare
