// SPDX-License-Identifier: Apache-2.0
// Tests what Nvml makes of the driver's samples, over a library that answers as that of an H200
// does (bench/results/samples.jsonl).
#include "intercept/nvrm/nvml.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpushare::nvrm {
namespace {

constexpr unsigned kA = 100, kB = 200;
constexpr std::size_t kLooks = 72;  // that the driver remembers
constexpr Nanos kPeriod = 200ms;

class FakeNvml final : public NvmlCalls {
 public:
  struct Look {
    Micros stamp{};
    unsigned pid = 0, sm = 0;
  };

  int find(const std::string&, void*& device) override {
    ++finds;
    if (!is_known) return kNotFound;
    device = this;
    return 0;
  }
  int looks_since(void*, NvmlLook* into, unsigned& count, unsigned long long since_us) override {
    ++looks_asked;
    if (!has_gpu_looks) return 3;
    if (failure != 0) return failure;
    const unsigned room = std::exchange(count, 0);
    for (const Look& one : looks)
      if (one.stamp > Micros(static_cast<int64_t>(since_us)) && count < room)
        into[count++] = {static_cast<unsigned long long>(one.stamp.count()), one.sm, 0};
    return count == 0 ? kNotFound : 0;
  }
  int samples(void*, NvmlSample* rows, unsigned& count, unsigned long long since_us) override {
    ++asks;
    if (failure != 0) return failure;
    if (count < needed) {
      count = needed;
      needed += grows;
      return 7;
    }
    std::map<unsigned, NvmlSample> by_pid;
    unsigned all = 0;
    for (const Look& one : looks) {
      if (one.stamp <= Micros(static_cast<int64_t>(since_us)) || one.pid == dead) continue;
      NvmlSample& row = by_pid[one.pid];
      row.pid = one.pid;
      row.timestamp_us =
          std::max(row.timestamp_us, static_cast<unsigned long long>(one.stamp.count()));
      row.sm += one.sm;
      ++all;
    }
    if (all == 0) return kNotFound;
    count = 0;
    for (auto& [pid, row] : by_pid) {
      if (row.sm <= 100 * all) row.sm /= all;
      rows[count++] = row;
    }
    return 0;
  }
  Now now() const override { return {.time = time, .wall = wall()}; }

  Micros wall() const {
    return std::chrono::duration_cast<Micros>(time.time_since_epoch()) + wall_ahead;
  }
  void look(unsigned pid, unsigned sm) {
    looks.push_back({wall(), pid, sm});
    if (looks.size() > kLooks) looks.pop_front();
  }

  static constexpr int kNotFound = 6;
  Time time{1000s};
  Micros wall_ahead = 500'000h;
  std::deque<Look> looks;
  bool is_known = true, has_gpu_looks = false;
  unsigned dead = 0;
  int looks_asked = 0;
  int failure = 0;
  unsigned needed = kLooks, grows = 0;
  int finds = 0, asks = 0;
};

class NvmlTest : public testing::Test {
 protected:
  // The driver looks now and then while time passes.
  void pass(Nanos time, unsigned sm, Nanos period = kPeriod) {
    const Time end = fake_->time + time;
    while (next_look_ <= end) {
      fake_->time = next_look_;
      fake_->look(kA, sm);
      worked_ += std::chrono::duration<double>(period).count() * sm / 100;
      next_look_ += period;
    }
    fake_->time = end;
  }
  void look_at_gpu() { fake_->has_gpu_looks = true; }
  // Nobody is there.
  void pass_alone(Nanos time) {
    fake_->time += time;
    next_look_ = fake_->time + 100ms;
  }
  UtilisationSample ask() {
    const auto sample = nvml_.utilisation("GPU-1");
    EXPECT_TRUE(sample.has_value());
    if (!sample) return {};
    EXPECT_LE(sample->from, sample->until);
    EXPECT_LE(sample->until, fake_->time) << "of the time to come";
    return *sample;
  }
  static double sum(const UtilisationSample& sample) {
    double all = 0;
    for (const Utilisation& each : sample.of) all += each.sm_fraction;
    return all * std::chrono::duration<double>(sample.until - sample.from).count();
  }

  FakeNvml* const fake_ = new FakeNvml;  // nvml_ has it
  Nvml nvml_{std::unique_ptr<NvmlCalls>(fake_)};
  Time next_look_ = fake_->time + 100ms;
  double worked_ = 0;  // seconds
};

TEST_F(NvmlTest, EveryLookIsToldOnceHoweverOftenItIsAsked) {
  pass(2s, 100);
  Time told = ask().until;
  EXPECT_EQ(fake_->time - told, 100ms);
  worked_ = 0;
  double said = 0;
  for (unsigned i = 0; i < 300; ++i) {
    const Nanos time = 70ms * (1 + i % 10);
    pass(time, i * 37 % 101);
    const UtilisationSample sample = ask();
    EXPECT_EQ(sample.from, told);
    told = sample.until;
    said += sum(sample);
  }
  EXPECT_NEAR(said, worked_, 1.2);
}

TEST_F(NvmlTest, HowBusyTheGpuWasIsToldOnceAlsoOfWhoHasEnded) {
  look_at_gpu();
  pass(2s, 100);
  Time told = ask().until;
  worked_ = 0;
  double said = 0;
  for (unsigned i = 0; i < 300; ++i) {
    fake_->dead = i % 3 == 0 ? kA : 0;
    pass(70ms * (1 + i % 10), i * 37 % 101);
    const UtilisationSample sample = ask();
    EXPECT_EQ(sample.from, told);
    told = sample.until;
    if (sample.until == sample.from) continue;
    EXPECT_EQ((fake_->time - sample.until) / kPeriod, 0) << "the newest look";
    ASSERT_GE(sample.busy, 0);
    said += sample.busy * std::chrono::duration<double>(sample.until - sample.from).count();
  }
  EXPECT_NEAR(said, worked_, 0.3);
}

TEST_F(NvmlTest, ALookAtTheGpuWhoseStampMovesIsNotToldAgain) {
  look_at_gpu();
  pass(1s, 100);
  const Time told = ask().until;
  fake_->looks.back().stamp += 600us;
  EXPECT_EQ(ask().until, told);
  pass(200ms, 0);
  EXPECT_EQ(ask().busy, 0);
}

TEST_F(NvmlTest, ALookAtTheGpuThatMakesNoSenseTellsNothing) {
  look_at_gpu();
  pass(1s, 50);
  const Time told = ask().until;
  pass(200ms, 40);
  pass(200ms, 101);
  pass(200ms, 40);
  UtilisationSample sample = ask();
  EXPECT_EQ(sample.until - told, 200ms);
  EXPECT_DOUBLE_EQ(sample.busy, 0.4);
  pass(2s, 30);
  sample = ask();
  EXPECT_NEAR(sample.busy, 0.3, 1e-9) << "it goes on when that is a second ago";
}

TEST_F(NvmlTest, ADriverWithoutLooksAtTheGpuIsAskedForThemOnce) {
  pass(1s, 50);
  for (int i = 0; i < 5; ++i) {
    pass(200ms, 50);
    EXPECT_LT(ask().busy, 0);
  }
  EXPECT_EQ(fake_->looks_asked, 1);
}

TEST_F(NvmlTest, TheFirstCallTellsOfASecond) {
  pass(3s, 30);
  const UtilisationSample sample = ask();
  EXPECT_EQ(fake_->time - sample.from, 1s);
  ASSERT_EQ(sample.of.size(), 1u);
  EXPECT_EQ(sample.of[0].pid, static_cast<pid_t>(kA));
  EXPECT_DOUBLE_EQ(sample.of[0].sm_fraction, 0.3);
}

TEST_F(NvmlTest, AfterAPauseItTellsOfASecond) {
  pass(1s, 100);
  ask();
  pass(60s, 0);
  pass(2s, 50);
  const UtilisationSample sample = ask();
  EXPECT_EQ(fake_->time - sample.from, 1s);
  ASSERT_EQ(sample.of.size(), 1u);
  EXPECT_DOUBLE_EQ(sample.of[0].sm_fraction, 0.5);
}

TEST_F(NvmlTest, ALookWhoseStampMovesIsNotToldAgain) {
  pass(1s, 100);
  ask();
  fake_->looks.back().stamp += 600us;
  EXPECT_TRUE(ask().of.empty());
  pass(200ms, 0);
  const UtilisationSample sample = ask();
  ASSERT_EQ(sample.of.size(), 1u);
  EXPECT_EQ(sample.of[0].sm_fraction, 0);
}

TEST_F(NvmlTest, TheWallClockMayBeSet) {
  const Nanos sets[] = {500ms, 1h, -300ms, -10s, -1h, 24h};
  for (const Nanos set : sets) {
    SCOPED_TRACE(set.count());
    pass(3s, 100);
    ask();
    fake_->wall_ahead += std::chrono::duration_cast<Micros>(set);
    Time told{};
    for (int i = 0; i < 200; ++i) {
      pass(200ms, 40);
      const UtilisationSample sample = ask();
      if (sample.until == sample.from) continue;
      told = sample.until;
      ASSERT_EQ(sample.of.size(), 1u) << "a program that works is there";
      EXPECT_DOUBLE_EQ(sample.of[0].sm_fraction, 0.4);
    }
    EXPECT_LT(fake_->time - told, 300ms) << "it tells again";
  }
}

// What an agent that begins then is told.
TEST_F(NvmlTest, ItMayHaveBeenSetBackBefore) {
  pass(10s, 100);
  fake_->wall_ahead -= std::chrono::duration_cast<Micros>(Nanos(1h));
  for (int i = 0; i < 200; ++i) {
    pass(200ms, 40);
    const UtilisationSample sample = ask();
    for (const Utilisation& each : sample.of) EXPECT_DOUBLE_EQ(each.sm_fraction, 0.4);
  }
  EXPECT_LT(fake_->time - ask().until, 300ms);
}

TEST_F(NvmlTest, WhereNobodyIsNothingIsDone) {
  pass(1s, 100);
  const Time told = ask().until;
  pass_alone(800ms);
  UtilisationSample sample = ask();
  EXPECT_EQ(sample.until, told) << "it may be late";
  pass_alone(800ms);
  sample = ask();
  EXPECT_TRUE(sample.of.empty());
  EXPECT_EQ(fake_->time - sample.from, 1s);
  EXPECT_EQ(fake_->time - sample.until, 300ms);
  const Time silent = sample.until;
  pass(200ms, 70);
  sample = ask();
  EXPECT_EQ(sample.from, silent);
  ASSERT_EQ(sample.of.size(), 1u);
  EXPECT_DOUBLE_EQ(sample.of[0].sm_fraction, 0.7);
}

TEST_F(NvmlTest, ADriverThatLooksOnceASecondIsNotTakenForSilent) {
  pass(5s, 50, 1s);
  for (int i = 0; i < 50; ++i) {
    const UtilisationSample sample = ask();
    if (sample.until > sample.from) EXPECT_EQ(sample.of.size(), 1u) << i;
    pass(200ms, 50, 1s);
  }
}

TEST_F(NvmlTest, RowsAreAskedForAgainWhenThereAreMore) {
  pass(1s, 50);
  EXPECT_FALSE(ask().of.empty());
  EXPECT_EQ(fake_->asks, 2);
  pass(200ms, 50);
  EXPECT_FALSE(ask().of.empty());
  EXPECT_EQ(fake_->asks, 3) << "it remembers how many there were";

  fake_->needed = 500;
  fake_->grows = 300;
  pass(200ms, 50);
  EXPECT_FALSE(nvml_.utilisation("GPU-1").has_value()) << "they grow each time";
  fake_->grows = 0;
  EXPECT_FALSE(ask().of.empty());
}

TEST_F(NvmlTest, ACallMayFail) {
  pass(2s, 100);
  const Time told = ask().until;
  for (const int failure : {15, 999, 3}) {
    fake_->failure = failure;
    pass(200ms, 50);
    EXPECT_FALSE(nvml_.utilisation("GPU-1").has_value());
  }
  fake_->failure = 0;
  pass(200ms, 50);
  const UtilisationSample sample = ask();
  EXPECT_EQ(sample.from, told) << "nothing is lost";
  EXPECT_EQ(sample.until - sample.from, 800ms);
}

TEST_F(NvmlTest, RowsThatMakeNoSenseTellNothing) {
  pass(1s, 100);
  ask();
  pass(200ms, 50);
  fake_->look(0, 50);  // of no process
  fake_->looks.push_back({Micros(0), kB, 50});
  const UtilisationSample sample = ask();
  ASSERT_EQ(sample.of.size(), 1u);
  EXPECT_EQ(sample.of[0].pid, static_cast<pid_t>(kA));

  pass(200ms, 50);
  fake_->look(kB, 2'147'483'632);  // as was seen: NVIDIA/DCGM issue 83
  const UtilisationSample none = ask();
  EXPECT_TRUE(none.of.empty());
  EXPECT_EQ(none.from, none.until);
}

TEST_F(NvmlTest, ProcessesMayHaveDifferentStamps) {
  pass(1s, 0);
  const Time told = ask().until;
  fake_->time += 100ms;  // 200 ms after the last look
  fake_->look(kA, 100);
  fake_->time += 200ms;
  fake_->look(kB, 50);
  const UtilisationSample sample = ask();
  EXPECT_EQ(sample.from, told);
  EXPECT_EQ(sample.until, fake_->time);
  EXPECT_NEAR(sum(sample), 0.3, 0.01);
}

TEST_F(NvmlTest, AGpuThatIsNotKnownIsLookedForAgain) {
  fake_->is_known = false;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(nvml_.utilisation("GPU-1").has_value());
    fake_->time += 200ms;
  }
  EXPECT_EQ(fake_->finds, 1);
  fake_->is_known = true;
  pass(10s, 50);
  EXPECT_FALSE(ask().of.empty());
}

// For the sanitizer of threads.
TEST(Nvml, IsAskedForSeveralGpusAtOnce) {
  class Counting final : public NvmlCalls {
   public:
    int looks_since(void*, NvmlLook*, unsigned&, unsigned long long) override {
      return FakeNvml::kNotFound;
    }
    int find(const std::string&, void*& device) override {
      device = this;
      return 0;
    }
    int samples(void*, NvmlSample*, unsigned& count, unsigned long long) override {
      ++asks_;
      count = 0;
      return FakeNvml::kNotFound;
    }
    Now now() const override { return {.time = Time(1000s), .wall = 500'000h}; }

   private:
    std::atomic<int> asks_ = 0;
  };
  Nvml nvml(std::make_unique<Counting>());
  std::vector<std::jthread> threads;
  for (int gpu = 0; gpu < 4; ++gpu)
    threads.emplace_back([&nvml, gpu] {
      for (int i = 0; i < 200; ++i)
        EXPECT_TRUE(nvml.utilisation("GPU-" + std::to_string(gpu)).has_value());
    });
}

}  // namespace
}  // namespace gpushare::nvrm
