// SPDX-License-Identifier: Apache-2.0
// GPUs are opened one by one, and one that hangs or refuses joins the others when it answers.
#include "sched/daemon/gpus/joining_gpus.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "shmctl/program/wait.h"
#include "tests/sched/support/fake_gpu.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class SlowlyOpened final : public test::FakeGpu {
 public:
  using FakeGpu::FakeGpu;
  Result<OpenedGpu> open(uint32_t gpu) override {
    std::unique_lock lock(mutex_);
    ++tries_[gpu];
    changed_.wait(lock, [&] { return !hanging_.contains(gpu); });
    if (refusing_.contains(gpu)) return make_error(std::errc::io_error, "open a GPU");
    OpenedGpu opened = *FakeGpu::open(gpu);
    opened.info.name = "opened";
    if (without_log_.contains(gpu)) opened.no_log_reason = "no log";
    return opened;
  }
  void set(std::set<uint32_t> hanging, std::set<uint32_t> refusing = {},
           std::set<uint32_t> without_log = {}) {
    const std::lock_guard lock(mutex_);
    hanging_ = std::move(hanging);
    refusing_ = std::move(refusing);
    without_log_ = std::move(without_log);
    changed_.notify_all();
  }
  int tries(uint32_t gpu) {
    const std::lock_guard lock(mutex_);
    return tries_[gpu];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint32_t> hanging_, refusing_, without_log_;
  std::map<uint32_t, int> tries_;
};

class JoiningGpusTest : public ::testing::Test {
 protected:
  JoiningGpusTest() {
    listed_->support_mut().has_switch_log = false;  // until one is open
    clock_.advance(1s);
  }
  ~JoiningGpusTest() override { listed_->set({}); }
  void begin() {
    gpus_.emplace(
        listed_, clock_,
        [this](uint32_t gpu) {
          return taken_.contains(gpu) ? make_error(std::errc::device_or_resource_busy, "wait")
                                      : Result<>();
        },
        [] {});
  }
  // What has joined until `gpu` has.
  std::vector<uint32_t> joined_with(uint32_t gpu) {
    std::vector<uint32_t> all;
    EXPECT_TRUE(eventually([&] {
      for (const uint32_t one : gpus_->look()) all.push_back(one);
      return gpus_->closed_because(gpu).empty();
    }));
    return all;
  }

  const std::shared_ptr<SlowlyOpened> listed_ = std::make_shared<SlowlyOpened>(3);
  ManualClock clock_;
  std::set<uint32_t> taken_;
  std::optional<JoiningGpus> gpus_;
};

TEST_F(JoiningGpusTest, OneThatHangsJoinsWhenItAnswers) {
  listed_->set({1});
  begin();
  EXPECT_EQ(joined_with(2).back(), 2u);
  (void)joined_with(0);
  // The thread that asks GPU 1 may begin after those that have long been answered.
  ASSERT_TRUE(eventually([&] { return listed_->tries(1) == 1; }));
  EXPECT_TRUE(gpus_->has_one());
  EXPECT_EQ(gpus_->gpus()[0].name, "opened");
  EXPECT_EQ(gpus_->gpus()[1].name, "");
  EXPECT_EQ(gpus_->closed_because(1), "is being opened");
  EXPECT_EQ(gpus_->first_problem(), "") << "not yet";
  EXPECT_FALSE(gpus_->has_hanging());
  EXPECT_EQ(gpus_->next(), clock_.now() + 2s) << "then the log says it";
  EXPECT_TRUE(gpus_->is_expected(1));
  clock_.advance(2s);
  EXPECT_FALSE(gpus_->is_expected(1));
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_TRUE(gpus_->closed_because(1).starts_with("does not answer"));
  EXPECT_EQ(gpus_->first_problem(), "GPU 1 " + gpus_->closed_because(1));
  EXPECT_TRUE(gpus_->has_hanging());
  EXPECT_EQ(gpus_->next(), Time::max());
  clock_.advance(1h);
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_EQ(listed_->tries(1), 1) << "it is not asked again meanwhile";
  listed_->set({});
  EXPECT_EQ(joined_with(1), std::vector<uint32_t>{1});
  EXPECT_EQ(gpus_->gpus()[1].name, "opened");
  EXPECT_EQ(gpus_->first_problem(), "");
  EXPECT_FALSE(gpus_->has_hanging());
}

// Whoever has no GPU at all says so, and opens the driver anew every two seconds.
TEST_F(JoiningGpusTest, SaysOfNoneThatItRefusesBeforeOneIsOpen) {
  listed_->set({}, {0, 1, 2});
  begin();
  testing::internal::CaptureStderr();
  gpus_->wait(60s);
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(gpus_->has_none());
  EXPECT_TRUE(gpus_->first_problem().starts_with("GPU 0 is not open: open a GPU"));
  listed_->set({1, 2}, {1});  // the first one that is open is GPU 0
  testing::internal::CaptureStderr();
  clock_.advance(JoiningGpus::kAgain);
  (void)joined_with(0);
  listed_->set({}, {1});
  (void)joined_with(2);
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(gpus_->look().empty());
    return gpus_->closed_because(1).starts_with("is not open");
  }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.contains("GPU 1 is not open")) << said;
  EXPECT_FALSE(said.contains("GPU 0")) << said;
}

TEST_F(JoiningGpusTest, OneThatRefusesIsAskedAgain) {
  listed_->set({}, {0});
  begin();
  gpus_->wait(60s);
  EXPECT_EQ(gpus_->look(), (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(gpus_->closed_because(0).starts_with("is not open: open a GPU"));
  EXPECT_FALSE(gpus_->is_expected(0));
  EXPECT_TRUE(gpus_->is_expected(1));
  EXPECT_EQ(gpus_->next(), clock_.now() + JoiningGpus::kAgain);
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_EQ(listed_->tries(0), 1);
  listed_->set({});
  clock_.advance(JoiningGpus::kAgain);
  EXPECT_EQ(joined_with(0), std::vector<uint32_t>{0});
}

TEST_F(JoiningGpusTest, NothingIsAskedOfOneThatAnotherMayStillAsk) {
  taken_ = {0, 1, 2};
  begin();
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_TRUE(gpus_->has_none());
  clock_.advance(JoiningGpus::kAgainSoon);
  EXPECT_TRUE(gpus_->look().empty());
  EXPECT_EQ(listed_->tries(0), 0);
  EXPECT_TRUE(gpus_->closed_because(0).starts_with("is not open: wait"));
  taken_ = {2};
  clock_.advance(JoiningGpus::kAgainSoon);
  (void)joined_with(0);
  (void)joined_with(1);
  EXPECT_EQ(listed_->tries(2), 0);
  EXPECT_FALSE(gpus_->has_none());
}

TEST_F(JoiningGpusTest, HasASwitchLogIfOneOfThoseThatAreOpenHas) {
  listed_->set({2}, {}, {0});
  begin();
  (void)joined_with(0);
  (void)joined_with(1);
  gpus_->settle_support();
  EXPECT_TRUE(gpus_->support().has_switch_log);
  EXPECT_EQ(gpus_->support().reason, "no log");
}

}  // namespace
}  // namespace gpushare
