// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/late_attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/sched/support/fake_gpu.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

constexpr uint32_t kClient = 0xC1D00001;

ObjectSearch::Found context_of(ProcessId process, uint32_t client = kClient) {
  const Time now{1s};
  return {{now, process, ProcessOpened{}},
          {now, process, ClientCreated{client, 5}},
          {now, process, DeviceCreated{client, 1, 0}},
          {now, process, GroupCreated{client, 1, 0x10, Engine::kGraphics, 5}},
          {now, process, ChannelCreated{client, 0x10, 0x11, 0xC86F}}};
}

}  // namespace

namespace test {

class FakeObserver final : public Observer {
 public:
  int fd() const override { return -1; }
  Result<uint64_t> drain(const Sink&, uint64_t) override { return 0; }
  uint64_t dropped() const override { return 0; }
  Result<> watch(ProcessId) override {
    ++watches;
    return watched;
  }
  Result<> watched;  // what the next ones answer
  int watches = 0;
};

}  // namespace test

namespace {

// A search of so many pieces, each of which takes its whole budget.
class SlowGpu : public test::FakeGpu {
 public:
  explicit SlowGpu(ManualClock& clock) : clock_(clock) {}
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef>) override {
    begun.push_back(pid);
    if (failing.contains(pid))
      return found_at_once(make_error(std::errc::too_many_files_open, "attach"));
    if (!attachable.contains(pid))
      return found_at_once(make_error(std::errc::no_such_process, "attach"));
    return std::make_unique<Search>(*this, attachable.at(pid), pieces[pid],
                                    !incomplete.contains(pid));
  }
  Result<std::vector<pid_t>> users() const override {
    if (cannot_list) return make_error(std::errc::too_many_files_open, "list a folder");
    return test::FakeGpu::users();
  }
  std::set<pid_t> failing, incomplete;
  bool cannot_list = false;
  std::map<pid_t, int> pieces;
  std::vector<pid_t> begun;

 private:
  class Search final : public ObjectSearch {
   public:
    Search(SlowGpu& gpu, Found found, int pieces, bool is_complete)
        : gpu_(gpu), found_(std::move(found)), left_(pieces), is_complete_(is_complete) {}
    bool is_complete() const override { return is_complete_; }
    Result<std::optional<Found>> advance(Nanos budget) override {
      gpu_.clock_.advance(budget);
      if (--left_ > 0) return std::nullopt;
      return found_;
    }

   private:
    SlowGpu& gpu_;
    const Found found_;
    int left_;
    const bool is_complete_;
  };
  ManualClock& clock_;
};

class LateAttachTest : public ::testing::Test {
 protected:
  LateAttachTest() { clock_.advance(100s); }
  // Until nothing is left to be looked at.
  void search() {
    while (late_.advance(500us)) {
    }
  }
  // Does so again and again, and searches each time.
  void look_often(int times, Nanos pause, const std::function<void()>& look) {
    for (int i = 0; i < times; ++i) {
      look();
      search();
      clock_.advance(pause);
    }
  }
  void add(pid_t pid, int pieces) {
    gpu_.attachable[pid] = context_of({pid, 7}, kClient + static_cast<uint32_t>(pid));
    gpu_.pieces[pid] = pieces;
  }
  void look(Nanos time) {
    for (const Time until = clock_.now() + time; clock_.now() < until; clock_.advance(1s)) {
      late_.look_around();
      search();
    }
  }
  std::vector<pid_t> known() const {
    std::vector<pid_t> pids;
    for (const auto& [pid, process] : registry_.processes())
      if (!process.holders.empty()) pids.push_back(pid);
    return pids;
  }

  ManualClock clock_;
  SlowGpu gpu_{clock_};
  Registry registry_{gpu_.gpus()};
  LateAttach late_{gpu_, nullptr, registry_, clock_};
};

TEST_F(LateAttachTest, NeverTakesLongerThanItMay) {
  add(10, 5);
  add(11, 3);
  late_.look_at_all();
  int steps = 0;
  bool has_more = true;
  while (has_more) {
    const Time before = clock_.now();
    has_more = late_.advance(500us);
    EXPECT_LE(clock_.now() - before, 500us);
    ASSERT_LE(++steps, 20);
  }
  EXPECT_GE(steps, 8);
  EXPECT_THAT(known(), ElementsAre(10, 11));
  EXPECT_THAT(gpu_.begun, ElementsAre(10, 11)) << "each was looked at once";
  EXPECT_FALSE(late_.advance(500us));
}

TEST_F(LateAttachTest, WhatHappensMeanwhileIsNotUndone) {
  add(10, 3);
  late_.look_at_all();
  ASSERT_TRUE(late_.advance(500us));
  // It makes a second group, which the search cannot have seen.
  const DriverEvent made{
      clock_.now(), {10, 7}, GroupCreated{kClient + 10, 1, 0x20, Engine::kGraphics, 5}};
  gpu_.attachable[10].push_back(made);
  registry_.apply({clock_.now(), {10, 7}, DeviceCreated{kClient + 10, 1, 0}});
  registry_.apply(made);
  late_.note(made);
  search();
  EXPECT_THAT(gpu_.begun, ElementsAre(10, 10)) << "from the beginning";
  ASSERT_EQ(registry_.find(10)->holders.size(), 1u);
  EXPECT_EQ(registry_.find(10)->holders[0].groups.size(), 2u);
}

TEST_F(LateAttachTest, ASearchUnderWayWhenEventsAreLostBeginsAgain) {
  add(10, 3);
  late_.look_at_all();
  ASSERT_TRUE(late_.advance(500us));
  late_.look_at_all();
  search();
  EXPECT_THAT(gpu_.begun, ElementsAre(10, 10));
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, BelievesARestlessProcessAtLast) {
  add(10, 2);
  late_.look_at_all();
  int steps = 0;
  while (late_.advance(500us)) {
    late_.note({clock_.now(), {10, 7}, ObjectFreed{kClient + 10, 0x99}});
    ASSERT_LT(++steps, 50);
  }
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, LooksLessAndLessOftenAtWhoHasNothing) {
  gpu_.attachable[10] = {};
  gpu_.pieces[10] = 1;
  look_often(300, 1s, [&] { late_.look_around(); });
  EXPECT_THAT(gpu_.begun, SizeIs(AllOf(Ge(12u), Le(16u))));
  EXPECT_THAT(known(), IsEmpty());
}

TEST_F(LateAttachTest, WhileEventsAreLostAllAreLookedAtLessAndLessOften) {
  add(10, 1);
  look_often(1000, 10ms, [&] { late_.look_at_all(); });
  EXPECT_THAT(gpu_.begun, SizeIs(AllOf(Ge(5u), Le(8u))));
  clock_.advance(1h);
  const std::size_t before = gpu_.begun.size();
  for (int i = 0; i < 2; ++i) {
    late_.look_at_all();
    late_.advance(500us);
    clock_.advance(LateAttach::kShortestBetweenAll);
  }
  EXPECT_EQ(gpu_.begun.size(), before + 2) << "after a calm hour at once again";
}

// Processes are found in pieces, too.
TEST_F(LateAttachTest, TheSearchForProcessesKeepsToItsTime) {
  class Users final : public UserSearch {
   public:
    explicit Users(ManualClock& clock) : clock_(clock) {}
    Result<std::optional<std::vector<pid_t>>> advance(Nanos budget) override {
      clock_.advance(budget);
      if (--left_ > 0) return std::nullopt;
      return std::vector<pid_t>{10};
    }

   private:
    ManualClock& clock_;
    int left_ = 20;
  };
  class ManyProcesses final : public test::FakeGpu {
   public:
    explicit ManyProcesses(ManualClock& clock) : clock_(clock) {}
    std::unique_ptr<UserSearch> find_users() const override {
      return std::make_unique<Users>(clock_);
    }

   private:
    ManualClock& clock_;
  };
  ManyProcesses gpu(clock_);
  gpu.attachable[10] = context_of({10, 7});
  LateAttach late(gpu, nullptr, registry_, clock_);
  late.look_at_all();
  int steps = 0;
  for (bool has_more = true; has_more; ++steps) {
    const Time before = clock_.now();
    has_more = late.advance(500us);
    EXPECT_LE(clock_.now() - before, 500us);
    ASSERT_LE(steps, 30);
  }
  EXPECT_GE(steps, 20);
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, AProcessThatLostEventsIsLookedAtAloneAndLessAndLess) {
  add(10, 1);
  add(11, 1);
  late_.look_at_all();
  search();
  gpu_.begun.clear();
  for (int second = 0; second < 60; ++second) {  // it goes on losing them
    late_.look_at(10);
    late_.look_around();
    search();
    clock_.advance(1s);
  }
  EXPECT_GE(gpu_.begun.size(), 3u);
  EXPECT_LE(gpu_.begun.size(), 8u);
  EXPECT_EQ(std::ranges::count(gpu_.begun, 11), 0) << "the other one was known";
  gpu_.begun.clear();
  clock_.advance(120s);
  late_.look_around();
  late_.look_at(10);
  late_.look_around();
  search();
  EXPECT_THAT(gpu_.begun, ElementsAre(10)) << "at once after a long peace";
}

TEST_F(LateAttachTest, WhoRunsUnknownIsLookedForUnlessItIsKnownByThen) {
  test::FakeObserver observer;
  LateAttach late(gpu_, &observer, registry_, clock_);
  for (const pid_t pid : {10, 11}) {
    add(pid, 1);
    late.look_for(pid, 0);
  }
  for (const DriverEvent& one : gpu_.attachable[10]) registry_.apply(one);
  const uint64_t serial = registry_.holder({10, 7}, 0)->groups[0].serials[0];
  late.look_around();
  while (late.advance(500us)) {
  }
  EXPECT_THAT(gpu_.begun, ElementsAre(11));
  EXPECT_THAT(known(), ElementsAre(10, 11));
  late.look_for(10, 1);  // on another GPU it is not
  late.look_around();
  while (late.advance(500us)) {
  }
  EXPECT_THAT(gpu_.begun, ElementsAre(11, 10));
  EXPECT_EQ(registry_.holder({10, 7}, 0)->groups[0].serials[0], serial);
}

TEST_F(LateAttachTest, WhoRunsDespiteAFreezeIsLookedForAboutEachSecond) {
  add(10, 1);
  for (const DriverEvent& one : gpu_.attachable[10]) registry_.apply(one);
  for (const Time until = clock_.now() + 60s; clock_.now() < until; clock_.advance(1ms)) {
    late_.look_despite_freeze(10);
    search();
  }
  EXPECT_GE(gpu_.begun.size(), 60u);
  EXPECT_LE(gpu_.begun.size(), 66u);
  gpu_.begun.clear();
  clock_.advance(60s);
  late_.look_around();
  late_.look_despite_freeze(10);
  search();
  EXPECT_THAT(gpu_.begun, Contains(10)) << "at once after a long peace";
}

TEST_F(LateAttachTest, AProcessThatCannotBeLookedAtIsTriedAgain) {
  add(10, 1);
  gpu_.failing.insert(10);
  late_.look_at_all();
  look(300s);
  EXPECT_GE(gpu_.begun.size(), 10u);
  EXPECT_LE(gpu_.begun.size(), 32u);
  gpu_.failing.clear();
  look(31s);
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, WhenTheProcessesCannotBeListedThatIsTriedAgain) {
  test::FakeObserver observer;
  LateAttach late(gpu_, &observer, registry_, clock_);
  add(10, 1);
  gpu_.cannot_list = true;
  late.look_at_all();
  late.advance(500us);
  gpu_.cannot_list = false;
  clock_.advance(1min);
  while (late.advance(500us)) {
  }
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, WhatASearchCouldNotAskForIsNotForgotten) {
  add(10, 1);
  for (const DriverEvent& one : gpu_.attachable[10]) registry_.apply(one);
  const ObjectSearch::Found all = gpu_.attachable[10];
  gpu_.attachable[10].resize(2);  // the client alone
  gpu_.incomplete.insert(10);
  late_.look_at_all();
  look(30s);
  EXPECT_THAT(known(), ElementsAre(10));
  gpu_.attachable[10].clear();
  late_.look_at_all();
  look(30s);
  EXPECT_THAT(known(), ElementsAre(10));
  gpu_.incomplete.clear();
  late_.look_at_all();
  look(30s);
  EXPECT_THAT(known(), IsEmpty()) << "it has closed everything";
}

TEST_F(LateAttachTest, WhatARestlessProcessHasIsNotForgotten) {
  add(10, 2);
  for (const DriverEvent& one : gpu_.attachable[10]) registry_.apply(one);
  gpu_.attachable[10].resize(2);
  late_.look_at_all();
  while (late_.advance(500us)) late_.note({clock_.now(), {10, 7}, ObjectFreed{kClient + 10, 0x99}});
  EXPECT_THAT(known(), ElementsAre(10));
}

TEST_F(LateAttachTest, WhatCannotBeWatchedIsKeptAndTriedAgain) {
  test::FakeObserver observer;
  LateAttach late(gpu_, &observer, registry_, clock_);
  observer.watched = make_error(std::errc::too_many_files_open, "watch process");
  add(10, 1);
  late.look_at_all();
  while (late.advance(500us)) {
  }
  EXPECT_THAT(known(), ElementsAre(10));
  late.look_around();
  EXPECT_EQ(observer.watches, 2);
  observer.watched = {};
  late.look_around();
  late.look_around();
  EXPECT_EQ(observer.watches, 3);
  EXPECT_THAT(known(), ElementsAre(10));
}

// Forked children are answered on the inherited descriptor.
TEST_F(LateAttachTest, WhenAnOwnerEndsTheNextOneOwnsTheClient) {
  for (const pid_t pid : {10, 11, 12}) {
    add(pid, 1);
    gpu_.attachable[pid] = context_of({pid, static_cast<uint64_t>(pid)});
  }
  late_.look_at_all();
  look(2s);
  EXPECT_THAT(known(), ElementsAre(10));
  for (const pid_t pid : {10, 11}) {
    registry_.close({pid, static_cast<uint64_t>(pid)});
    gpu_.attachable.erase(pid);
    look(2s);
    EXPECT_THAT(known(), ElementsAre(pid + 1));
  }
}

}  // namespace
}  // namespace gpushare
