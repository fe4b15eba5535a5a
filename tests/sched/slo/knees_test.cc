// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/knees/knee.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "sched/policy/command_signature.h"
#include "sched/slo/knees/store.h"
#include "tests/sched/support/slo_world.h"

namespace gpushare {
namespace {

constexpr int kGroups = 16;  // of an H200

using Kind = LatencyShape::Kind;

std::vector<LatencyShape> family() {
  std::vector<LatencyShape> shapes{{Kind::kLinear, 0}};
  for (int i = 0; i <= 20; ++i) shapes.push_back({Kind::kAmdahl, 0.05 * i});
  for (int i = 2; i <= 30; ++i) shapes.push_back({Kind::kPlateau, 0.5 * i});
  for (int i = 1; i <= 200; ++i) shapes.push_back({Kind::kWaves, static_cast<double>(i)});
  return shapes;
}

uint32_t offline_knee(const LatencyShape& shape) {
  std::vector<double> sweep;
  for (int groups = 1; groups <= kGroups; ++groups) sweep.push_back(shape.at(groups));
  return knee_of_sweep(sweep);
}

constexpr double kAlone = 10e6;  // ns on all groups

// Returns how often a sample missed the SLO.
int search(KneeFinder& finder, const LatencyShape& shape, double slo_ns, double noise = 0,
           uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  int misses = 0;
  while (const auto groups = finder.next()) {
    const double off = 1 + noise * (static_cast<double>(random() % 2001) - 1000) / 1000;
    const double ns = kAlone * shape.at(*groups) * off;
    misses += slo_ns > 0 && ns > slo_ns * (1 + 2 * noise);
    finder.sample(*groups, Nanos(static_cast<int64_t>(ns)));
  }
  return misses;
}

std::string describe(const LatencyShape& shape) {
  std::ostringstream text;
  text << "kind " << static_cast<int>(shape.kind) << " parameter " << shape.parameter;
  return text.str();
}

TEST(Knee, OfASweepIsWhereMoreHardlyHelps) {
  EXPECT_EQ(knee_of_sweep({4, 2, 1.04, 1.03, 1}), 3U);
  EXPECT_EQ(knee_of_sweep({1, 1, 1}), 1U);
  EXPECT_EQ(knee_of_sweep({1, 2, 1}), 3U);  // no knee below a share that is worse
  EXPECT_EQ(knee_of_sweep({7}), 1U);
}

TEST(Knee, IsFoundWithinOneGroupOfTheSweepInSixSamplesWithoutAMiss) {
  for (const double slack : {0.0, 3.0, 2.0}) {
    for (const LatencyShape& shape : family()) {
      KneeFinder finder(kGroups, Nanos(static_cast<int64_t>(slack * kAlone)));
      EXPECT_EQ(search(finder, shape, slack * kAlone), 0) << describe(shape);
      EXPECT_LE(finder.samples(), KneeFinder::kMostSamples);
      EXPECT_NEAR(finder.knee(), offline_knee(shape), 1) << describe(shape) << " slack " << slack;
    }
  }
}

TEST(Knee, WithLittleSlackNothingIsRisked) {
  for (const double slack : {1.1, 1.5, 1.9}) {
    for (const LatencyShape& shape : family()) {
      KneeFinder finder(kGroups, Nanos(static_cast<int64_t>(slack * kAlone)));
      EXPECT_EQ(search(finder, shape, slack * kAlone), 0) << describe(shape);
      EXPECT_GE(finder.knee(), offline_knee(shape));
      EXPECT_TRUE(finder.is_bounded() || finder.knee() <= offline_knee(shape) + 1);
    }
  }
}

TEST(Knee, ASloThatIsMissedAnywayIsNoReasonToTryLess) {
  KneeFinder finder(kGroups, Nanos(1000));
  finder.sample(kGroups, Nanos(2000));
  EXPECT_FALSE(finder.next().has_value());
  EXPECT_EQ(finder.knee(), static_cast<uint32_t>(kGroups));
  EXPECT_TRUE(finder.is_bounded());
}

TEST(Knee, SmallNoiseMovesItByLittle) {
  int far = 0, all = 0;
  for (const LatencyShape& shape : family()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      KneeFinder finder(kGroups, Nanos(static_cast<int64_t>(2.5 * kAlone)));
      EXPECT_EQ(search(finder, shape, 2.5 * kAlone, 0.01, seed), 0);
      // Where the curve crosses 5 % flatly, noise alone moves the crossing: by time, not by groups.
      const double loss = shape.at(finder.knee()) / shape.at(kGroups);
      EXPECT_LE(loss, 1.08) << describe(shape);
      far += std::abs(static_cast<int>(finder.knee()) - static_cast<int>(offline_knee(shape))) > 1;
      ++all;
    }
  }
  EXPECT_LE(far * 20, all);
}

TEST(Knee, OneGroupIsItsOwnKnee) {
  KneeFinder finder(1, Nanos(0));
  EXPECT_EQ(finder.next(), 1U);
  finder.sample(1, Nanos(5));
  EXPECT_FALSE(finder.next().has_value());
  EXPECT_EQ(finder.knee(), 1U);
  EXPECT_FALSE(finder.is_bounded());
}

class KneeStoreTest : public ::testing::Test {
 protected:
  KneeStoreTest() {
    char name[] = "/tmp/knees-XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/knees.json";
  }
  ~KneeStoreTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::string folder_, path_;
};

TEST_F(KneeStoreTest, KeepsWhatWasFoundAcrossRuns) {
  const KnownKnee knee{.knee = 5, .widest = 15, .is_bounded = true};
  {
    auto store = KneeStore::open(path_);
    ASSERT_TRUE(store);
    EXPECT_EQ(store->find("a", "H200"), std::nullopt);
    store->put("a", "H200", knee);
    ASSERT_TRUE(store->save());
  }
  auto store = KneeStore::open(path_);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->find("a", "H200"), knee);
  EXPECT_EQ(store->find("a", "H100"), std::nullopt);
  EXPECT_EQ(store->find("b", "H200"), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(KneeStoreTest, WritesNothingWhenNothingChanged) {
  auto store = KneeStore::open(path_);
  ASSERT_TRUE(store->save());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(KneeStoreTest, AForeignOrBrokenFileIsRefusedAndLeftAlone) {
  for (
      const char* text :
      {"hello", "{}", "[1]", R"({"format":2,"knees":[]})", R"({"format":1,"knees":{"a":1}})",
       R"({"format":1,"knees":[{"command":"a","gpu":"g","knee":0,"widest":15,"is_bounded":false,"run":1}]})",
       R"({"format":1,"knees":[{"command":"a","gpu":"g","knee":9,"widest":8,"is_bounded":false,"run":1}]})",
       R"({"format":1,"knees":[{"command":"a","gpu":"g","knee":"5","widest":8,"is_bounded":false,"run":1}]})"}) {
    write(text);
    const auto store = KneeStore::open(path_);
    ASSERT_FALSE(store) << text;
    EXPECT_NE(store.error().message().find(path_), std::string::npos);
    EXPECT_EQ(read(), text);
  }
  write(std::string(2 << 20, ' '));
  EXPECT_FALSE(KneeStore::open(path_));
}

TEST_F(KneeStoreTest, TheOneUnusedForLongestMakesRoom) {
  {
    auto store = KneeStore::open(path_);
    store->put("old", "g", {1, 15, false});
    ASSERT_TRUE(store->save());
  }
  auto store = KneeStore::open(path_);
  for (size_t i = 0; i < KneeStore::kMostKnees; ++i)
    store->put("c" + std::to_string(i), "g", {2, 15, false});
  EXPECT_EQ(store->size(), KneeStore::kMostKnees);
  EXPECT_EQ(store->find("old", "g"), std::nullopt);
  EXPECT_TRUE(store->find("c0", "g"));
  ASSERT_TRUE(store->save());
  EXPECT_EQ(KneeStore::open(path_)->size(), KneeStore::kMostKnees);
}

TEST_F(KneeStoreTest, AFailedSaveLeavesTheOldFileAndNothingElse) {
  auto store = KneeStore::open(folder_ + "/missing/knees.json");
  ASSERT_TRUE(store);
  store->put("a", "g", {1, 15, false});
  const auto saved = store->save();
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message().find("missing"), std::string::npos);
}

TEST(CommandSignature, CountsEveryArgumentAndTheProgramByItsFileName) {
  using Arguments = std::vector<std::string>;
  const std::string one = command_signature(Arguments{"/usr/bin/python3", "serve.py", "--batch=8"});
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(one, command_signature(Arguments{"python3", "serve.py", "--batch=8"}));
  EXPECT_NE(one, command_signature(Arguments{"python3", "serve.py", "--batch=16"}));
  EXPECT_NE(one, command_signature(Arguments{"python3", "serve.py--batch=8"}));
  EXPECT_NE(command_signature(Arguments{"a", "bc"}), command_signature(Arguments{"ab", "c"}));
  EXPECT_EQ(command_signature("  /opt/bin/python3  serve.py\n--batch=8 "), one);
  EXPECT_EQ(command_signature(" \t\n"), "");
}

TEST(CommandSignature, OfOneUserSaysNothingOfAnothers) {
  const std::string one = command_signature("python3 train.py", 1000);
  EXPECT_EQ(one, command_signature("/usr/bin/python3 train.py", 1000));
  EXPECT_NE(one, command_signature("python3 train.py", 1001));
  EXPECT_NE(one, command_signature("python3 train.py", std::nullopt));
  EXPECT_NE(one, command_signature("python3 train.py"));
  EXPECT_EQ(command_signature("", 1000), "") << "what is not known is not one command";
}

TEST(CommandSignature, IsShortAndPlainWhateverTheCommandIs) {
  for (const std::string& hostile :
       {std::string(100'000, 'x'), std::string("a\n\"b\",,\0c", 9),
        std::string("\xff\xfe\xc0 \x80"), std::string("run,0,0,0\nrun-2,1,1,1")}) {
    const std::string signature = command_signature(hostile, 0);
    EXPECT_EQ(signature.size(), 16u);
    EXPECT_EQ(signature.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpushare
