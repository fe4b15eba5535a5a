// SPDX-License-Identifier: Apache-2.0
// Driver calls on threads of their own: nobody waits for a slice but the slices after it, and what
// is under way is never overtaken by what undoes it. Run with the thread sanitizer, too.
#include "sched/enforce/driver_line.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "tests/sched/enforce/enforcer_rig.h"

namespace gpushare {
namespace {

using namespace test;
using namespace std::chrono_literals;

constexpr Nanos kSoon = 60s;  // the longest that a test waits for what must happen

// A driver whose slices wait at a gate of their GPU (which the group's client tells).
class GatedGpu final : public FakeGpu {
 public:
  explicit GatedGpu(uint32_t gpus = 1) : FakeGpu(gpus), is_open_(gpus, true) {}

  void set_open(uint32_t gpu, bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_[gpu] = is_open;
    changed_.notify_all();
  }
  // Until a call stands at the gate.
  void await_waiting() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kSoon, [this] { return waiting_ > 0; }));
  }
  bool is_anyone_waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }
  std::vector<Kind> kinds() const {
    const std::lock_guard lock(mutex_);
    std::vector<Kind> kinds;
    for (const Call& call : calls) kinds.push_back(call.kind);
    return kinds;
  }
  Micros slice_now(uint32_t client) const {
    const std::lock_guard lock(mutex_);
    return slice_of(client, 0x10);
  }
  int frozen_now() const {
    const std::lock_guard lock(mutex_);
    return frozen_channels();
  }

  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    const std::lock_guard lock(mutex_);
    return FakeGpu::freeze(gpu, channels);
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    const std::lock_guard lock(mutex_);
    return FakeGpu::thaw(gpu, channels);
  }
  Result<> set_slice(const GroupRef& group, Micros slice) override {
    std::unique_lock lock(mutex_);
    const uint32_t gpu = group.client >> 16;
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_[gpu]; });
    --waiting_;
    return FakeGpu::set_slice(group, slice);
  }
  Result<Micros> slice(const GroupRef& group) override {
    const std::lock_guard lock(mutex_);
    return FakeGpu::slice(group);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> is_open_;
  int waiting_ = 0;
};

SliceOrder order(uint32_t client, Micros slice) {
  const ProcessId process{static_cast<pid_t>(100 + client), 1};
  return {.kind = SliceOrder::Kind::kSet,
          .key = {process, 0},
          .ref = {process, 3, client, 0x10},
          .own_slice_count = 0,
          .slice = slice};
}

class DriverLineTest : public ::testing::Test {
 protected:
  ~DriverLineTest() override { gpu_.set_open(0, true); }

  GatedGpu gpu_;
  MonotonicClock clock_;
  std::unique_ptr<DriverLine> line_ = make_driver_line(DriverCalls::kOnThreads, gpu_, 0, clock_);
};

TEST_F(DriverLineTest, AFreezeWaitsForOneSliceAtMost) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us), order(2, 2000us), order(3, 3000us)});
  gpu_.await_waiting();
  std::vector<FreezeDeed> freezes(1);
  freezes[0].key = {kA, 0};
  freezes[0].parts.push_back({.ref = {kA, 3, 0xA, 0x10}, .channels = {{0x20, 1}}});
  line_->add({.freezes = std::move(freezes)});
  EXPECT_TRUE(line_->take_done().is_empty()) << "and the caller does not";
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  const std::vector<Kind> expected{Kind::kSetSlice, Kind::kFreeze, Kind::kSetSlice,
                                   Kind::kSetSlice};
  EXPECT_EQ(gpu_.kinds(), expected);
  const DoneDeeds done = line_->take_done();
  ASSERT_EQ(done.freezes.size(), 1u);
  EXPECT_TRUE(done.freezes[0].result);
  EXPECT_EQ(done.slices.size(), 3u);
}

TEST_F(DriverLineTest, AQuestionWaitsForOneSliceAndIsAnsweredOnTheCallersThread) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us), order(2, 2000us)});
  gpu_.await_waiting();
  Micros read{};
  std::thread::id asked_on{}, answered_on{};
  line_->ask([&]() -> DriverAnswer {
    asked_on = std::this_thread::get_id();
    return [&, slice = gpu_.slice({kA, 3, 2, 0x10})] {
      answered_on = std::this_thread::get_id();
      read = *slice;
    };
  });
  std::vector<FreezeDeed> freezes(1);
  freezes[0].key = {kA, 0};
  freezes[0].parts.push_back({.ref = {kA, 3, 0xA, 0x10}, .channels = {{0x20, 1}}});
  line_->add({.freezes = std::move(freezes)});
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  const std::vector<Kind> expected{Kind::kSetSlice, Kind::kFreeze, Kind::kGetSlice,
                                   Kind::kSetSlice};
  EXPECT_EQ(gpu_.kinds(), expected);
  EXPECT_EQ(answered_on, std::thread::id()) << "not before it is taken";
  DoneDeeds done = line_->take_done();
  ASSERT_EQ(done.answers.size(), 1u);
  done.answers[0]();
  EXPECT_EQ(read, 2048us);
  EXPECT_EQ(answered_on, std::this_thread::get_id());
  EXPECT_NE(asked_on, answered_on);
}

FreezeDeed freeze_of(const ProcessId& process, uint32_t client) {
  FreezeDeed deed{.key = {process, 0}, .parts = {}};
  deed.parts.push_back({.ref = {process, 3, client, 0x10}, .channels = {{0x20, 1}}});
  return deed;
}

TEST_F(DriverLineTest, WhatWaitsGoesTogetherAndWhoHasGoneIsNotAskedFor) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us)});
  gpu_.await_waiting();
  line_->add({.freezes = {freeze_of(kA, 0xA)}});
  line_->add({.freezes = {freeze_of(kB, 0xB)}});
  line_->add({.freezes = {freeze_of({300, 1}, 0xC)}});
  line_->call_off({kA, 0});
  const DoneDeeds gone = line_->take_done();
  ASSERT_EQ(gone.freezes.size(), 1u) << "before the driver has come back";
  EXPECT_EQ(gone.freezes[0].key.first, kA);
  EXPECT_EQ(gone.freezes[0].result.error().code, std::errc::no_such_process);
  EXPECT_TRUE(gone.freezes[0].parts[0].is_taken_back) << "its ledger entry is to go";
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_EQ(gpu_.kinds(), (std::vector<Kind>{Kind::kSetSlice, Kind::kFreeze}));
  EXPECT_EQ(gpu_.calls[1].channels.size(), 2u);
  const DoneDeeds done = line_->take_done();
  ASSERT_EQ(done.freezes.size(), 2u);
  for (const FreezeDeed& deed : done.freezes) EXPECT_TRUE(deed.result) << deed.key.first.pid;
}

ThawDeed thaw_of(const ProcessId& process, uint32_t client) {
  return {.key = {process, 0}, .rounds = {{{client, 0x20}}}};
}

TEST_F(DriverLineTest, ThawsGoFirstUnlessFreezesShall) {
  line_->add({{freeze_of(kA, 0xA)}, {thaw_of(kB, 0xB)}, SwitchOrder::kThawsFirst});
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_EQ(gpu_.kinds(), (std::vector<Kind>{Kind::kThaw, Kind::kFreeze}));

  const auto in_step = make_driver_line(DriverCalls::kInStep, gpu_, 0, clock_);
  in_step->add({{freeze_of(kB, 0xB)}, {thaw_of(kA, 0xA)}, SwitchOrder::kFreezesFirst});
  EXPECT_EQ(gpu_.kinds(),
            (std::vector<Kind>{Kind::kThaw, Kind::kFreeze, Kind::kFreeze, Kind::kThaw}));
}

TEST_F(DriverLineTest, OfWhatGoesTogetherFreezesAreFirstIfAnyShallBe) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us)});
  gpu_.await_waiting();
  line_->add({.thaws = {thaw_of(kB, 0xB)}});
  line_->add({{freeze_of(kA, 0xA)}, {}, SwitchOrder::kFreezesFirst});
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_EQ(gpu_.kinds(), (std::vector<Kind>{Kind::kSetSlice, Kind::kFreeze, Kind::kThaw}));
}

TEST_F(DriverLineTest, WhatHasNotBegunIsReplacedAndWhatIsUnderWayIsNotDoneTwice) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us), order(2, 2000us)});
  gpu_.await_waiting();
  line_->set({order(2, 2500us), order(1, 1000us), order(3, 3000us)});
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  line_->set({order(3, 3000us)});  // done, and not told yet
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_EQ(gpu_.kinds().size(), 3u);
  EXPECT_EQ(gpu_.slice_now(2), 2500us);
}

TEST_F(DriverLineTest, WhatIsWithdrawnIsNotSetUnlessItHasBegun) {
  gpu_.set_open(0, false);
  const SliceOrder first = order(1, 1000us), second = order(2, 2000us);
  line_->set({first, second});
  gpu_.await_waiting();
  EXPECT_FALSE(line_->withdraw(first.key));
  EXPECT_TRUE(line_->withdraw(second.key));
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_FALSE(line_->withdraw(first.key)) << "nobody knows yet that it is done";
  EXPECT_EQ(line_->take_done().slices.size(), 1u);
  EXPECT_TRUE(line_->withdraw(first.key));
  EXPECT_EQ(gpu_.slice_now(2), 2048us);
}

TEST_F(DriverLineTest, WhatIsRestoredIsNotReplacedByLaterSlices) {
  gpu_.set_open(0, false);
  line_->set({order(1, 1000us)});
  gpu_.await_waiting();
  SliceOrder back = order(1, 2048us);
  back.kind = SliceOrder::Kind::kRestore;
  line_->restore({back});
  line_->set({});
  gpu_.set_open(0, true);
  ASSERT_TRUE(line_->wait(kSoon));
  EXPECT_EQ(gpu_.slice_now(1), 2048us);
}

// The enforcer on two GPUs with two programs each, whose driver calls are on threads.
class EnforcerOnThreads : public ::testing::Test {
 protected:
  EnforcerOnThreads() {
    for (uint32_t on = 0; on < 2; ++on)
      for (int i = 0; i < 2; ++i)
        for (const DriverEvent& one : program(process(on, i), handles(on, i), on))
          registry_.apply(one);
  }
  ~EnforcerOnThreads() override {
    gpu_.set_open(0, true);
    gpu_.set_open(1, true);
  }
  static ProcessId process(uint32_t on, int i) {
    return {static_cast<pid_t>(100 + 10 * on) + i, 1};
  }
  static Handles handles(uint32_t on, int i) {
    return {.client = (on << 16) + 0xA + static_cast<uint32_t>(i),
            .device = 1,
            .group = 0x10,
            .first_channel = 0x20};
  }
  Enforcer::Target target(uint32_t on, int i, bool is_frozen, Micros slice) {
    return {registry_.holder(process(on, i), on), slice, is_frozen};
  }
  void apply(uint32_t on, bool is_frozen, Micros slice) {
    const std::vector<Enforcer::Target> targets{target(on, 0, is_frozen, slice),
                                                target(on, 1, false, slice)};
    enforcer_.begin_step();
    enforcer_.apply(on, targets);
  }
  bool is_frozen(uint32_t on, int i) {
    return enforcer_.state(*registry_.holder(process(on, i), on)).is_frozen;
  }
  template <class Condition>
  void apply_until(uint32_t on, bool is_frozen, Micros slice, const Condition& is_so) {
    const Time until = clock_.now() + kSoon;
    do {
      apply(on, is_frozen, slice);
      std::this_thread::sleep_for(100us);
    } while (!is_so() && clock_.now() < until);
    ASSERT_TRUE(is_so());
  }
  std::size_t listed(bool (*is_it)(const LedgerRecord&)) const {
    std::size_t n = 0;
    ledger_.for_each([&](uint32_t, const LedgerRecord& record) { n += is_it(record); });
    return n;
  }
  static bool is_freeze(const LedgerRecord& record) { return record.freezes > 0; }
  static bool is_slice(const LedgerRecord& record) { return record.slice_changed != 0; }

  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  GatedGpu gpu_{2};
  Ledger ledger_{*region_};
  MonotonicClock clock_;
  Registry registry_{gpu_.gpus()};
  Enforcer enforcer_{gpu_, ledger_, clock_, {}, driver_lines(DriverCalls::kOnThreads)};
};

// It comes again in the step in which the driver's answer lets go of what there was of it.
TEST_F(EnforcerOnThreads, WhatWasForgottenWhileItWasAskedForComesAgain) {
  constexpr int kRounds = 300, kSteps = 30;
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    const Micros slice = round % 2 == 0 ? 500us : 700us;
    gpu_.set_open(0, false);
    apply_until(0, false, slice, [&] { return gpu_.is_anyone_waiting(); });
    for (int i = 0; i < 2; ++i) enforcer_.forget(process(0, i), 0);
    gpu_.set_open(0, true);
    for (int step = 0; step < kSteps; ++step) apply(0, false, slice);
    apply_until(0, false, slice, [&] {
      return gpu_.slice_now(handles(0, 0).client) == slice &&
             gpu_.slice_now(handles(0, 1).client) == slice;
    });
  }
}

TEST_F(EnforcerOnThreads, AGpuThatDoesNotAnswerHoldsNobodyElseUp) {
  gpu_.set_open(0, false);
  // What a slice was is read, and listed, before it is set: being listed is not being at the gate.
  apply_until(0, false, 500us, [&] { return gpu_.is_anyone_waiting(); });
  apply_until(1, true, 700us, [&] {
    return is_frozen(1, 0) && gpu_.slice_now(handles(1, 0).client) == 700us &&
           gpu_.slice_now(handles(1, 1).client) == 700us;
  });
  EXPECT_EQ(gpu_.slice_now(handles(0, 0).client), 2048us);
  const Time until = clock_.now() + kSoon;
  while (!enforcer_.is_stuck(0) && clock_.now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(enforcer_.is_stuck(0));
  EXPECT_FALSE(enforcer_.is_stuck(1));
  gpu_.set_open(0, true);
  for (const Time end = clock_.now() + kSoon; enforcer_.is_stuck(0) && clock_.now() < end;)
    std::this_thread::sleep_for(100us);
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_now(), 0);
  for (uint32_t on = 0; on < 2; ++on)
    for (int i = 0; i < 2; ++i) EXPECT_EQ(gpu_.slice_now(handles(on, i).client), 2048us);
  EXPECT_EQ(listed(is_freeze) + listed(is_slice), 0u);
}

TEST_F(EnforcerOnThreads, AtTheEndAGpuThatHangsStaysListedAndTheOthersAreUndone) {
  apply_until(0, true, 500us, [&] { return is_frozen(0, 0); });
  apply_until(1, true, 700us, [&] { return is_frozen(1, 0); });
  gpu_.set_open(0, false);
  apply_until(0, true, 900us, [&] { return gpu_.is_anyone_waiting(); });
  enforcer_.undo_all();
  ledger_.for_each([](uint32_t, const LedgerRecord& record) { EXPECT_EQ(record.gpu, 0u); });
  EXPECT_EQ(listed(is_freeze), 1u);
  EXPECT_EQ(gpu_.frozen_now(), 8) << "on the first GPU";
  EXPECT_FALSE(enforcer_.rest(Nanos{}));
  gpu_.set_open(0, true);
  // Until its thread has run again it counts as stuck, which is not waited for.
  for (const Time end = clock_.now() + kSoon; enforcer_.is_stuck(0) && clock_.now() < end;)
    std::this_thread::sleep_for(100us);
  EXPECT_TRUE(enforcer_.rest(kSoon));
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_now(), 0);
  EXPECT_EQ(listed(is_freeze) + listed(is_slice), 0u);
}

TEST_F(EnforcerOnThreads, WhatIsUnderWayIsListedAndItsProcessIsLeftAloneUntilItIsDone) {
  apply_until(0, false, 500us, [&] { return listed(is_slice) == 2; });
  apply_until(0, false, 500us, [&] { return gpu_.slice_now(handles(0, 1).client) == 500us; });
  gpu_.set_open(0, false);
  apply(0, false, 900us);
  gpu_.await_waiting();
  apply(0, true, 900us);  // the freeze waits for the slice that is being set
  EXPECT_EQ(listed(is_freeze), 1u) << "written ahead";
  EXPECT_FALSE(is_frozen(0, 0));
  apply(0, false, 900us);  // and is not overtaken by the thaw
  EXPECT_TRUE(enforcer_.is_behind());
  EXPECT_EQ(listed(is_freeze), 1u);
  // It ends meanwhile: its entries stay until the driver has come back.
  enforcer_.forget(process(0, 0), 0);
  EXPECT_EQ(listed(is_freeze), 1u);
  gpu_.set_open(0, true);
  // The freeze has been called off; the slice that was under way is given back after it.
  const auto is_undone = [&] {
    return listed(is_freeze) == 0 && gpu_.slice_now(handles(0, 0).client) == 2048us;
  };
  const Time until = clock_.now() + kSoon;
  while (!is_undone() && clock_.now() < until) {
    enforcer_.collect();
    std::this_thread::sleep_for(100us);
  }
  EXPECT_TRUE(is_undone());
  EXPECT_EQ(gpu_.frozen_now(), 0);
}

TEST_F(EnforcerOnThreads, FreezesAndSlicesAtRandomLeaveNothingBehind) {
  std::mt19937 random(1);
  for (int step = 0; step < 2000; ++step) {
    enforcer_.collect();
    apply(step % 2, random() % 2 == 0, Micros(500 + random() % 3));
    if (random() % 50 == 0) enforcer_.forget(process(0, 1), 0);
  }
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_now(), 0);
  for (uint32_t on = 0; on < 2; ++on)
    for (int i = 0; i < 2; ++i) EXPECT_EQ(gpu_.slice_now(handles(on, i).client), 2048us);
  EXPECT_EQ(listed(is_freeze) + listed(is_slice), 0u);
}

}  // namespace
}  // namespace gpushare
