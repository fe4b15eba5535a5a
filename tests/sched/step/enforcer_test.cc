// SPDX-License-Identifier: Apache-2.0
#include "sched/step/enforcer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare {
namespace {

using test::event;
using test::FakeGpu;
using test::Handles;
using test::program;
using Kind = FakeGpu::Call::Kind;
using namespace std::chrono_literals;

constexpr ProcessId kA{100, 1100}, kB{200, 1200};
constexpr Handles kHandlesA{.client = 0xA, .device = 1, .group = 0x10, .first_channel = 0x20};
constexpr Handles kHandlesB{.client = 0xB, .device = 1, .group = 0x10, .first_channel = 0x20};

class EnforcerTest : public ::testing::Test {
 protected:
  // A region's parts are valid when zero.
  std::unique_ptr<Region> region_ = std::make_unique<Region>();
  FakeGpu gpu_;
  Ledger ledger_{*region_};
  ManualClock clock_;
  Registry registry_{gpu_.gpus()};
  test::FakeProcReader processes_;
  std::vector<Enforcer::Change> changes_;
  Enforcer enforcer_{gpu_, ledger_, clock_,
                     [this](const Enforcer::Change& change) { changes_.push_back(change); }};

  void SetUp() override {
    for (const DriverEvent& one : program(kA, kHandlesA)) registry_.apply(one);
    for (const DriverEvent& one : program(kB, kHandlesB)) registry_.apply(one);
  }
  const Holder& holder(const ProcessId& process) { return *registry_.holder(process, 0); }
  Enforcer::Target target(const ProcessId& process, bool is_frozen, Micros slice = Micros(0)) {
    return {&holder(process), slice, is_frozen};
  }
  void apply(std::vector<Enforcer::Target> targets) { enforcer_.apply(0, targets); }
  std::size_t calls(Kind kind) const { return gpu_.count(kind); }
  std::size_t ledger_entries() const {
    std::size_t n = 0;
    ledger_.for_each([&](uint32_t, const LedgerRecord&) { ++n; });
    return n;
  }
  void refuse(Kind kind, std::errc code = std::errc::operation_not_permitted) {
    gpu_.fault = [=](const FakeGpu::Call& call) -> Result<> {
      if (call.kind == kind) return make_error(code, "ask the driver");
      return {};
    };
  }
};

TEST_F(EnforcerTest, FreezesTheComputeChannelsOnceAndThawsThemOnce) {
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "not the copy channel";
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_FALSE(enforcer_.state(holder(kB)).is_frozen);
  apply({target(kA, true)});
  EXPECT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 1);
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(calls(Kind::kThaw), 1u);
  apply({target(kA, false)});
  EXPECT_EQ(calls(Kind::kThaw), 1u);
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, FreezesSeveralProcessesInOneCallBeforeItThawsOthers) {
  apply({target(kA, true), target(kB, true)});
  ASSERT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(gpu_.calls[0].channels.size(), 16u);
  apply({target(kA, false), target(kB, true)});
  gpu_.calls.clear();
  apply({target(kA, true, Micros(1000)), target(kB, false, Micros(1))});
  ASSERT_GE(gpu_.calls.size(), 4u);
  EXPECT_EQ(gpu_.calls.front().kind, Kind::kFreeze);
  EXPECT_EQ(gpu_.calls.back().kind, Kind::kThaw);
}

TEST_F(EnforcerTest, WritesAheadOfEveryFreezeAndSlice) {
  gpu_.fault = [this](const FakeGpu::Call& call) -> Result<> {
    bool is_listed = false;
    ledger_.for_each([&](uint32_t, const LedgerRecord& record) {
      if (call.kind == Kind::kFreeze) is_listed |= record.freezes > 0 && record.channel_count == 8;
      if (call.kind == Kind::kSetSlice)
        is_listed |= record.slice_changed != 0 && record.original_slice_us == 2048;
    });
    if (call.kind == Kind::kFreeze || call.kind == Kind::kSetSlice) {
      EXPECT_TRUE(is_listed);
    }
    return {};
  };
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(calls(Kind::kFreeze), 1u);
  EXPECT_EQ(calls(Kind::kSetSlice), 1u);
}

TEST_F(EnforcerTest, SetsASliceOnlyWhenItChanges) {
  apply({target(kA, false, Micros(4000))});
  apply({target(kA, false, Micros(4000))});
  EXPECT_EQ(calls(Kind::kSetSlice), 1u);
  EXPECT_EQ(enforcer_.state(holder(kA)).slice, Micros(4000));
  apply({target(kA, false)});
  EXPECT_EQ(calls(Kind::kSetSlice), 1u) << "0 leaves it";
}

TEST_F(EnforcerTest, SetsTheSliceAgainWhenTheProcessChoseItsOwn) {
  constexpr uint32_t kSetTimeslice = 0xA06C0103;
  apply({target(kA, false, Micros(4000))});
  registry_.apply(
      event(kA, ControlMade{kHandlesA.client, kHandlesA.group, kSetTimeslice, 0, 2048}));
  apply({target(kA, false, Micros(4000))});
  EXPECT_EQ(calls(Kind::kSetSlice), 2u);
  registry_.apply(
      event(kA, ControlMade{kHandlesA.client, kHandlesA.group, kSetTimeslice, 0, 3000}));
  apply({target(kA, false, Micros(4000))});
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(3000));
}

TEST_F(EnforcerTest, FreezesWhatAFrozenProcessMakesLater) {
  apply({target(kA, true)});
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xC86F}));
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 9);
  EXPECT_EQ(gpu_.calls.back().channels.size(), 1u);
  Handles second = kHandlesA;
  second.group = 0x11;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 17);
  EXPECT_EQ(enforcer_.state(holder(kA)).freezes, 1u) << "it stayed frozen all along";
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, ForgetsChannelsThatTheProcessFreed) {
  apply({target(kA, true)});
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.calls.back().channels.size(), 7u);
}

TEST_F(EnforcerTest, ForgetsGroupsThatTheProcessFreed) {
  Handles second = kHandlesA;
  second.group = 0x11;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 2u);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 1u);
}

TEST_F(EnforcerTest, AnEndedProcessLeavesNothing) {
  apply({target(kA, true, Micros(1))});
  EXPECT_EQ(ledger_entries(), 1u);
  enforcer_.forget(kA, 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, ARefusalIsBelievedWhenItIsRepeated) {
  refuse(Kind::kFreeze);
  apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true)});
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_control);
  EXPECT_FALSE(state.is_frozen);
  EXPECT_NE(state.note.find("ask the driver"), std::string::npos);
  gpu_.calls.clear();
  apply({target(kA, true, Micros(1))});
  EXPECT_TRUE(gpu_.calls.empty()) << "left alone";
}

TEST_F(EnforcerTest, AProcessWithAnUnknownChannelClassIsOnlyObserved) {
  apply({target(kA, true, Micros(5000)), target(kB, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  gpu_.unknown_classes = {0xCC6F};
  registry_.apply(event(kA, ChannelCreated{.client = kHandlesA.client,
                                           .parent = kHandlesA.group,
                                           .channel = kHandlesA.first_channel + 8,
                                           .class_id = 0xCC6F}));
  apply({target(kA, true, Micros(5000)), target(kB, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_control);
  EXPECT_EQ(state.note, "channel class 0xcc6f is not known: observed only");
  EXPECT_TRUE(enforcer_.state(holder(kB)).can_control);
}

TEST_F(EnforcerTest, AnUnknownChannelClassIsNeverTouched) {
  gpu_.unknown_classes = {0xC86F};
  apply({target(kA, true, Micros(5000))});
  EXPECT_TRUE(gpu_.calls.empty());
  EXPECT_EQ(ledger_entries(), 0u);
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
}

TEST_F(EnforcerTest, OfOneMpsServersClientsTheProcessIsStoppedAndNoChannelFrozen) {
  apply({target(kA, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  // A and B turn out to hold the same group in hardware: what was done to A alone is undone.
  gpu_.hardware_groups[kHandlesA.group] = 6;
  constexpr Handles kSecond{.client = 0xA2, .device = 1, .group = 0x10, .first_channel = 0x40};
  for (const DriverEvent& one : program(kA, kSecond)) registry_.apply(one);
  apply({target(kA, false, Micros(5000)), target(kB, true, Micros(3000))});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  EXPECT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(2048));
  EXPECT_EQ(gpu_.stopped, std::set{kB});
  EXPECT_EQ(ledger_entries(), 1u);
  for (const ProcessId& process : {kA, kB})
    EXPECT_NE(enforcer_.state(holder(process)).note.find("MPS"), std::string::npos);
  EXPECT_TRUE(enforcer_.state(holder(kB)).is_frozen);

  apply({target(kA, false), target(kB, true)});
  EXPECT_EQ(calls(Kind::kStop), 1u);
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  // The one that stays is still a client of that server.
  enforcer_.forget(kB, 0);
  enforcer_.undo_all();
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true, Micros(5000))});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.stopped, std::set{kA});
}

TEST_F(EnforcerTest, AStoppedProcessThatLosesItsGroupRunsOn) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  enforcer_.forget(kA, 0);
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, WhatCannotBeResumedStaysInTheLedger) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true), target(kB, true)});
  refuse(Kind::kResume);
  enforcer_.forget(kA, 0);
  EXPECT_EQ(ledger_entries(), 2u);
  refuse(Kind::kResume, std::errc::no_such_process);
  enforcer_.forget(kB, 0);
  EXPECT_EQ(ledger_entries(), 1u) << "it is gone";
}

TEST_F(EnforcerTest, ChannelsThatCouldNotBeThawedAreBeforeTheProcessIsStopped) {
  apply({target(kA, true)});
  refuse(Kind::kThaw);
  gpu_.hardware_groups[kHandlesA.group] = 6;
  constexpr Handles kSecond{.client = 0xA2, .device = 1, .group = 0x10, .first_channel = 0x40};
  for (const DriverEvent& one : program(kA, kSecond)) registry_.apply(one);
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_TRUE(gpu_.stopped.empty());
  gpu_.fault = nullptr;
  apply({target(kA, true), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0) << "they would hold B";
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  enforcer_.undo_all();
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, AProcessStoppedForTwoGpusRunsOnWhenNeitherWantsItStopped) {
  FakeGpu gpu(2);
  Registry registry(gpu.gpus());
  Enforcer enforcer(gpu, ledger_, clock_, nullptr);
  gpu.hardware_groups[kHandlesA.group] = 6;
  for (const ProcessId& process : {kA, kB}) {
    for (uint32_t i = 0; i < 2; ++i) {
      const Handles handles{.client = static_cast<uint32_t>(process.pid) + i,
                            .device = 1,
                            .group = 0x10,
                            .first_channel = 0x20};
      for (const DriverEvent& one : program(process, handles, i)) registry.apply(one);
    }
  }
  const auto apply_on = [&](uint32_t index, bool is_frozen) {
    const std::vector<Enforcer::Target> targets{{registry.holder(kA, index), Micros(0), is_frozen},
                                                {registry.holder(kB, index), Micros(0), false}};
    enforcer.apply(index, targets);
  };
  apply_on(0, true);
  apply_on(1, true);
  apply_on(0, false);
  EXPECT_EQ(gpu.stopped, std::set{kA});
  apply_on(1, false);
  EXPECT_TRUE(gpu.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, AStopIsWrittenAheadAndWhoCannotBeStoppedIsOnlyObserved) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, false), target(kB, false)});
  gpu_.fault = [&](const FakeGpu::Call& call) -> Result<> {
    if (call.kind != Kind::kStop) return {};
    EXPECT_EQ(ledger_entries(), 1u);
    return make_error(std::errc::operation_not_permitted, "stop process");
  };
  apply({target(kA, true)});
  EXPECT_EQ(ledger_entries(), 0u);
  apply({target(kA, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, GroupsOfOneProcessMayBeOneInHardware) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(EnforcerTest, OneProcessesRefusalDoesNotSpareTheOthers) {
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    for (const ChannelRef& channel : call.channels)
      if (call.kind == Kind::kFreeze && channel.client == kHandlesA.client)
        return make_error(std::errc::operation_not_permitted, "ask the driver");
    return {};
  };
  apply({target(kA, true), target(kB, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_TRUE(enforcer_.state(holder(kB)).is_frozen);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(EnforcerTest, WhoRefusesASliceKeepsHisOwnAndIsFrozenAllTheSame) {
  apply({target(kA, true, Micros(1))});
  refuse(Kind::kSetSlice);
  apply({target(kA, true, Micros(500))});
  apply({target(kA, true, Micros(500))});
  const Enforcer::State state = enforcer_.state(holder(kA));
  EXPECT_FALSE(state.can_set_slice);
  EXPECT_EQ(state.note, "again in 1 s: ask the driver: Operation not permitted");
  EXPECT_TRUE(state.can_control) << "it must not escape its cap by that";
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(ledger_entries(), 1u) << "with the slice that could not be restored";
  const std::size_t asked = calls(Kind::kSetSlice);
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(calls(Kind::kSetSlice), asked) << "left alone";
  gpu_.fault = nullptr;
  clock_.advance(1s);
  apply({target(kA, true, Micros(500))});
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(500));
  EXPECT_EQ(enforcer_.state(holder(kA)).note, "");
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
}

TEST_F(EnforcerTest, WhatIsRefusedIsTriedAgainWithPausesThatGrow) {
  refuse(Kind::kFreeze, std::errc::too_many_files_open);
  std::vector<std::chrono::seconds> tried;  // since the one before
  std::size_t asked = 0;
  Time last{};
  for (int second = 0; second < 400; ++second) {
    apply({target(kA, true)});
    apply({target(kA, true)});
    if (calls(Kind::kFreeze) > std::exchange(asked, calls(Kind::kFreeze)))
      tried.push_back(std::chrono::duration_cast<std::chrono::seconds>(
          clock_.now() - std::exchange(last, clock_.now())));
    clock_.advance(1s);
  }
  const std::vector<std::chrono::seconds> expected{0s,  1s,  2s,  4s,  8s,  16s,
                                                   32s, 60s, 60s, 60s, 60s, 60s};
  EXPECT_EQ(tried, expected);
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_TRUE(enforcer_.state(holder(kA)).note.starts_with("again in "))
      << enforcer_.state(holder(kA)).note;
  gpu_.fault = nullptr;
  clock_.advance(60s);
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  EXPECT_EQ(enforcer_.state(holder(kA)).note, "");
}

// What the registry has forgotten may be there all the same: after losses, for example.
TEST_F(EnforcerTest, WhatIsForgottenIsThawedFirst) {
  apply({target(kA, true, Micros(1)), target(kB, true)});
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 0);
  Handles second = kHandlesA;
  second.group = 0x12;
  second.first_channel = 0x40;
  for (const DriverEvent& one : program(kA, second)) registry_.apply(one);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  apply({target(kA, false), target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  enforcer_.forget(kB, 0);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, WhatIsForgottenAndCannotBeThawedIsTriedAgain) {
  apply({target(kA, true), target(kB, true)});
  refuse(Kind::kThaw, std::errc::too_many_files_open);
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.first_channel}));
  apply({target(kA, true), target(kB, true)});
  enforcer_.forget(kB, 0);
  EXPECT_EQ(gpu_.frozen_channels(), 16);
  EXPECT_EQ(ledger_entries(), 2u);
  for (int i = 0; i < 3; ++i) enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(ledger_entries(), 2u);
  gpu_.fault = nullptr;
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, kHandlesA.first_channel}), 0);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 15) << "not yet: with pauses";
  clock_.advance(1s);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 7);
  EXPECT_EQ(ledger_entries(), 1u);
}

TEST_F(EnforcerTest, AnEntryOfAProcessThatHasEndedGoesWithTheLastTry) {
  apply({target(kA, true)});
  refuse(Kind::kThaw, std::errc::io_error);
  enforcer_.forget(kA, 0);
  processes_.dead[kA.pid] = true;
  refuse(Kind::kThaw, std::errc::no_such_process);
  enforcer_.undo_leftovers(processes_);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, WhatAnAgentBeforeLeftIsUndoneBeforeTheProcessIsFrozenAgain) {
  const std::vector<uint32_t> channels{kHandlesA.first_channel, kHandlesA.first_channel + 1};
  const LedgerKey key{.pid = kA.pid,
                      .start_ticks = kA.start_ticks,
                      .gpu = 0,
                      .client = kHandlesA.client,
                      .group = kHandlesA.group};
  ASSERT_TRUE(ledger_.begin_freeze(key, 3, channels));
  for (const uint32_t channel : channels) {
    const ChannelRef ref{kHandlesA.client, channel};
    ASSERT_TRUE(gpu_.freeze(0, std::span(&ref, 1)));
  }
  Enforcer next(gpu_, ledger_, clock_, nullptr);
  const std::vector<Enforcer::Target> targets{target(kA, true)};
  next.apply(0, targets);
  EXPECT_EQ(gpu_.freezes({kHandlesA.client, channels[0]}), 1) << "not twice";
  next.undo_leftovers(processes_);
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  next.apply(0, targets);
  EXPECT_EQ(gpu_.frozen_channels(), 8);
  next.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, AFreezeThatFailedHalfwayIsTakenBack) {
  gpu_.fault = [this](const FakeGpu::Call& call) -> Result<> {
    if (call.kind != Kind::kFreeze) return {};
    gpu_.fault = nullptr;
    const Result<> done = gpu_.freeze(0, std::span(call.channels).first(3));
    refuse(Kind::kFreeze);
    return make_error(std::errc::io_error, "ask the driver");
  };
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// A process that frees channels at any moment must not escape by that.
TEST_F(EnforcerTest, AChannelThatIsGoneDoesNotSpareTheOthers) {
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    const ChannelRef gone{kHandlesA.client, kHandlesA.first_channel + 2};
    if (call.kind == Kind::kFreeze && std::ranges::find(call.channels, gone) != call.channels.end())
      return make_error(std::errc::no_such_process, "freeze channels");
    return {};
  };
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.frozen_channels(), 15);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  const std::size_t asked = gpu_.calls.size();
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.calls.size(), asked) << "it is not asked for again";
  apply({target(kA, false), target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

// The hardware uses the number of a freed group again, at once.
TEST_F(EnforcerTest, AGroupNumberThatIsUsedAgainMakesNobodyAnMpsClient) {
  constexpr Handles kNew{.client = 0xA, .device = 1, .group = 0x11, .first_channel = 0x40};
  gpu_.hardware_groups = {{kHandlesA.group, 6}, {kNew.group, 7}};
  registry_.apply(event(kB, ObjectFreed{kHandlesB.client, kHandlesB.client}));
  constexpr Handles kLater{.client = 0xB, .device = 1, .group = 0x12, .first_channel = 0x60};
  gpu_.hardware_groups[kLater.group] = 8;
  for (const DriverEvent& one : program(kB, kLater)) registry_.apply(one);
  apply({target(kA, false), target(kB, false)});
  // B's new group gets the number of A's, and A's new one that of B's, in one step.
  constexpr Handles kLast{.client = 0xB, .device = 1, .group = 0x13, .first_channel = 0x80};
  gpu_.hardware_groups = {
      {kNew.group, 8}, {kLast.group, 6}, {kHandlesA.group, 99}, {kLater.group, 98}};
  registry_.apply(event(kA, ObjectFreed{kHandlesA.client, kHandlesA.group}));
  registry_.apply(event(kB, ObjectFreed{kLater.client, kLater.group}));
  for (const DriverEvent& one : program(kA, kNew)) registry_.apply(one);
  for (const DriverEvent& one : program(kB, kLast)) registry_.apply(one);
  apply({target(kA, true), target(kB, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 16);
}

TEST_F(EnforcerTest, AProcessThatIsNotFollowedAnyMoreSharesNothing) {
  gpu_.hardware_groups = {{kHandlesA.group, 6}};
  apply({target(kA, false)});
  gpu_.hardware_groups = {{kHandlesA.group, 9}};  // A's, which nobody has looked at since
  constexpr Handles kNew{.client = 0xB, .device = 1, .group = 0x12, .first_channel = 0x60};
  gpu_.hardware_groups[kNew.group] = 6;
  registry_.apply(event(kB, ObjectFreed{kHandlesB.client, kHandlesB.client}));
  for (const DriverEvent& one : program(kB, kNew)) registry_.apply(one);
  apply({target(kB, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(EnforcerTest, WhoSharesNothingForLongIsNoMpsClientAnyMore) {
  gpu_.hardware_groups[kHandlesA.group] = 6;
  apply({target(kA, false), target(kB, false)});
  registry_.close(kB);
  enforcer_.forget(kB, 0);
  clock_.advance(9s);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  clock_.advance(9s);
  apply({target(kA, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA}) << "not while it is stopped";
  apply({target(kA, false)});
  apply({target(kA, true)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(gpu_.frozen_channels(), 8);
}

TEST_F(EnforcerTest, AProcessWithMoreGroupsThanCanBeListedIsStopped) {
  Handles more = kHandlesA;
  for (more.group = 0x100; more.group < 0x100 + kMaxLedger; ++more.group) {
    more.first_channel = 0x100000 + more.group * 16;
    more.channels = 1;
    for (const DriverEvent& one : program(kA, more))
      if (!std::holds_alternative<MemoryAllocated>(one.what)) registry_.apply(one);
  }
  apply({target(kA, true), target(kB, true)});
  EXPECT_EQ(gpu_.stopped, std::set{kA});
  EXPECT_EQ(gpu_.frozen_channels(), 8) << "B's";
  EXPECT_EQ(ledger_entries(), 2u);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_NE(enforcer_.state(holder(kA)).note.find("too many channel groups"), std::string::npos);
  apply({target(kA, false), target(kB, false)});
  EXPECT_TRUE(gpu_.stopped.empty());
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, AProcessThatIsGoneIsNoError) {
  refuse(Kind::kFreeze, std::errc::no_such_process);
  for (int i = 0; i < 3; ++i) apply({target(kA, true)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).can_control);
}

TEST_F(EnforcerTest, AThawThatFailsIsTriedAgain) {
  apply({target(kA, true), target(kB, true)});
  gpu_.fault = [](const FakeGpu::Call& call) -> Result<> {
    for (const ChannelRef& channel : call.channels)
      if (channel.client == kHandlesA.client) return make_error(std::errc::io_error, "thaw");
    return {};
  };
  apply({target(kA, false), target(kB, false)});
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  EXPECT_FALSE(enforcer_.state(holder(kB)).is_frozen);
  EXPECT_EQ(ledger_entries(), 1u);
  gpu_.fault = nullptr;
  apply({target(kA, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, WhoIsLeftAloneIsStillThawedWhenThatFailedAtFirst) {
  apply({target(kA, true, Micros(500))});
  gpu_.fault = [](const FakeGpu::Call&) -> Result<> {
    return make_error(std::errc::io_error, "ask the driver");
  };
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x77, 0xC86F}));
  apply({target(kA, true)});
  registry_.apply(event(kA, ChannelCreated{kHandlesA.client, kHandlesA.group, 0x78, 0xC86F}));
  apply({target(kA, true)});
  EXPECT_FALSE(enforcer_.state(holder(kA)).can_control);
  EXPECT_TRUE(enforcer_.state(holder(kA)).is_frozen);
  gpu_.fault = nullptr;
  apply({target(kB, false)});
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(ledger_entries(), 1u) << "the slice";
}

TEST_F(EnforcerTest, UndoAllLeavesTheGpuAsItWas) {
  apply({target(kA, true, Micros(1)), target(kB, false, Micros(9000))});
  enforcer_.undo_all();
  EXPECT_EQ(gpu_.frozen_channels(), 0);
  EXPECT_EQ(gpu_.slice_of(kHandlesA.client, kHandlesA.group), Micros(2048));
  EXPECT_EQ(gpu_.slice_of(kHandlesB.client, kHandlesB.group), Micros(2048));
  EXPECT_EQ(ledger_entries(), 0u);
}

TEST_F(EnforcerTest, DoesNotFreezeWhatTheLedgerCannotHold) {
  for (int32_t i = 0; i < int{kMaxLedger}; ++i)
    ASSERT_TRUE(ledger_.note_slice(
        {.pid = 1000 + i, .start_ticks = 9, .gpu = 0, .client = 9, .group = 1}, 3, 2048));
  apply({target(kA, true)});
  EXPECT_EQ(calls(Kind::kFreeze), 0u);
  EXPECT_FALSE(enforcer_.state(holder(kA)).is_frozen);
}

TEST_F(EnforcerTest, AsksNothingOfADriverThatCannot) {
  gpu_.support_mut().can_freeze = false;
  gpu_.support_mut().can_set_slice = false;
  apply({target(kA, true, Micros(1))});
  EXPECT_TRUE(gpu_.calls.empty());
}

TEST_F(EnforcerTest, ReportsWhatItDidInOrder) {
  apply({target(kA, true, Micros(1))});
  apply({target(kA, false)});
  ASSERT_EQ(changes_.size(), 3u);
  EXPECT_EQ(changes_[0].kind, Enforcer::Change::Kind::kFreeze);
  EXPECT_EQ(changes_[1].kind, Enforcer::Change::Kind::kSlice);
  EXPECT_EQ(changes_[1].slice, Micros(1));
  EXPECT_EQ(changes_[2].kind, Enforcer::Change::Kind::kThaw);
}

// Any decisions under any faults: a channel is never frozen twice, what is frozen is listed, and in
// the end everything is as it was.
TEST_F(EnforcerTest, RandomFaultsNeverLeaveAnythingFrozen) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    gpu_.fault = [&](const FakeGpu::Call&) -> Result<> {
      if (random() % 10 == 0) return make_error(std::errc::io_error, "ask the driver");
      return {};
    };
    for (int step = 0; step < 50; ++step) {
      apply({target(kA, random() % 2 == 0, Micros(1000 + random() % 3)),
             target(kB, random() % 2 == 0, Micros(1000 + random() % 3))});
      for (const Handles& handles : {kHandlesA, kHandlesB}) {
        const int count = gpu_.freezes({handles.client, handles.first_channel});
        EXPECT_LE(count, 1);
        if (count == 0) continue;
        bool is_listed = false;
        ledger_.for_each([&](uint32_t, const LedgerRecord& record) {
          is_listed |= record.client == handles.client && record.freezes > 0;
        });
        EXPECT_TRUE(is_listed);
      }
    }
    gpu_.fault = nullptr;
    enforcer_.undo_all();
    EXPECT_EQ(gpu_.frozen_channels(), 0);
    EXPECT_EQ(ledger_entries(), 0u);
    enforcer_.forget(kA, 0);
    enforcer_.forget(kB, 0);
  }
}

// A driver that takes as long for a slice as the hardware's.
class SlicesTest : public EnforcerTest {
 protected:
  static constexpr int kPrograms = 64;
  static constexpr Nanos kOneSlice = std::chrono::microseconds(300);

  SlicesTest() {
    for (int i = 0; i < kPrograms; ++i) {
      const auto id = static_cast<uint32_t>(i);
      const Handles handles{
          .client = 0x100 + id, .device = 1, .group = 0x10, .first_channel = 0x20};
      for (const DriverEvent& one : program(process(i), handles)) registry_.apply(one);
    }
    gpu_.fault = [this](const FakeGpu::Call& call) -> Result<> {
      if (call.kind == Kind::kSetSlice) clock_.advance(kOneSlice);
      return {};
    };
  }
  static ProcessId process(int i) { return {1000 + i, 1}; }
  std::vector<Enforcer::Target> all(const std::function<Micros(int)>& slice) {
    std::vector<Enforcer::Target> targets;
    for (int i = 0; i < kPrograms; ++i) targets.push_back(target(process(i), false, slice(i)));
    return targets;
  }
  void settle(const std::vector<Enforcer::Target>& targets) {
    do {
      enforcer_.begin_step();
      apply(targets);
    } while (enforcer_.is_behind());
    gpu_.calls.clear();
  }
};

TEST_F(SlicesTest, AStepSetsNoMoreThanItHasTimeForAndTheNextOnesSetTheRest) {
  const auto targets = all([](int) { return Micros(500); });
  int steps = 0;
  do {
    const Time before = clock_.now();
    enforcer_.begin_step();
    apply(targets);
    EXPECT_LE(clock_.now() - before, Enforcer::kSliceTime + kOneSlice);
    ASSERT_LE(++steps, 10);
  } while (enforcer_.is_behind());
  EXPECT_EQ(calls(Kind::kSetSlice), static_cast<std::size_t>(kPrograms));
  EXPECT_GE(steps, 4);
}

TEST_F(SlicesTest, WhatIsFurthestFromItsTargetComesFirst) {
  settle(all([](int) { return Micros(1000); }));
  // All move a little; two move far, up and down, and are named last.
  const auto targets = all([](int i) {
    return i == kPrograms - 1 ? Micros(20'000) : i == kPrograms - 2 ? Micros(1) : Micros(1010);
  });
  enforcer_.begin_step();
  apply(targets);
  ASSERT_GE(calls(Kind::kSetSlice), 2u);
  EXPECT_EQ(gpu_.calls[0].slice, Micros(1));
  EXPECT_EQ(gpu_.calls[1].slice, Micros(20'000));
  EXPECT_TRUE(enforcer_.is_behind());
}

TEST_F(SlicesTest, FreezesAndThawsAreNotPutOff) {
  settle(all([](int) { return Micros(1000); }));
  auto targets = all([](int) { return Micros(500); });
  for (auto& one : targets) one.is_frozen = true;
  enforcer_.begin_step();
  apply(targets);
  EXPECT_TRUE(enforcer_.is_behind());
  EXPECT_EQ(gpu_.frozen_channels(), kPrograms * 8);
  for (auto& one : targets) one.is_frozen = false;
  apply(targets);  // with no time left
  EXPECT_EQ(gpu_.frozen_channels(), 0);
}

}  // namespace
}  // namespace gpushare
