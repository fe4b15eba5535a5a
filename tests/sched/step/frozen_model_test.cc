// SPDX-License-Identifier: Apache-2.0
// Whatever happens, in random order and in virtual time: what is frozen is listed, is thawed when
// nobody wants it frozen, and nothing of a living process is frozen after stop and recovery. More
// seeds: GPUSHARE_TEST_FREEZE_SEEDS.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "sched/enforce/recovery.h"
#include "tests/sched/enforce/queued_line.h"
#include "tests/sched/support/nasty_machine.h"
#include "tests/sched/support/scheduler_rig.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::NastyMachine;

struct FrozenCase {
  uint32_t seed = 0;
  bool is_queued = false;  // the driver answers later, as on threads
};

class FrozenModel : public ::testing::TestWithParam<FrozenCase> {
 protected:
  FrozenModel() {
    clock_.advance(100s);
    if (GetParam().is_queued) parts_.make_line = test::queued_lines(pace_);
  }
  ~FrozenModel() override { parts_.kill(); }
  void start() { parts_.start(machine_, &machine_, clock_, machine_); }
  void run_for(Nanos time, Nanos step = 20ms) {
    for (const Time until = clock_.now() + time; clock_.now() < until; clock_.advance(step)) {
      parts_.scheduler->step();
      expect_listed("a step");
    }
  }
  void expect_listed(const char* after) {
    std::set<ChannelRef, decltype([](const ChannelRef& a, const ChannelRef& b) {
               return std::tie(a.client, a.channel) < std::tie(b.client, b.channel);
             })>
        listed;
    std::set<std::pair<uint32_t, uint32_t>> sliced;
    std::set<ProcessId> stopped;
    for_each_entry(*parts_.region, [&](uint32_t, const LedgerRecord& record) {
      if (record.slice_changed != 0) sliced.insert({record.client, record.group});
      if (record.freezes == 0) return;
      if (record.client == 0) stopped.insert({record.pid, record.start_ticks});
      for (uint32_t i = 0; i < record.channel_count; ++i)
        listed.insert({record.client, record.channels[i]});
    });
    for (const auto& [handle, client] : machine_.clients())
      for (const auto& [name, group] : client.groups) {
        if (group.is_first && !client.was_inherited)
          EXPECT_TRUE(group.slice == NastyMachine::kOwnSlice || sliced.contains({handle, name}))
              << "after " << after << ": the slice of group " << std::hex << handle << "/" << name
              << " is changed and not listed";
        for (const auto& [channel, state] : group.channels) {
          if (state.freezes == 0) continue;
          EXPECT_TRUE(listed.contains({handle, channel}))
              << "after " << after << ": client " << std::hex << handle << " channel " << channel
              << " is frozen and not listed";
        }
      }
    for (const ProcessId& process : machine_.stopped)
      EXPECT_TRUE(stopped.contains(process)) << "after " << after << ": " << process.pid;
  }
  std::string describe(const Holder& owner) const {
    const Enforcer::State is = parts_.scheduler->state().enforcer.state(owner);
    std::string text = "process " + std::to_string(owner.process.pid) + ", " + is.note;
    if (is.is_frozen) text += ", frozen";
    if (!is.can_control) text += ", not controlled";
    for (const ComputeGroup& group : owner.groups)
      for (const uint32_t channel : group.channels)
        text += fmt::format(" {:x}/{:x}/{:x}", group.ref.client, group.ref.group, channel);
    return text;
  }
  // Without faults: what the plan wants frozen is frozen, more than once only after events were
  // lost, and nothing else is.
  void expect_as_planned() {
    const State& state = parts_.scheduler->state();
    for (const auto& [handle, client] : machine_.clients())
      for (const auto& [name, group] : client.groups)
        for (const auto& [channel, is] : group.channels) {
          const Holder* owner = nullptr;
          bool is_known = false;  // the channel, too
          for (const auto& [pid, process] : state.registry.processes())
            for (const Holder& holder : process.holders)
              for (const ComputeGroup& seen : holder.groups)
                if (seen.ref.client == handle && seen.ref.group == name &&
                    holder.gpu == group.gpu) {
                  owner = &holder;
                  is_known = std::ranges::binary_search(seen.channels, channel);
                }
          EXPECT_TRUE(owner != nullptr || !group.is_dense)
              << std::hex << "client " << handle << " group " << name << " of process " << std::dec
              << client.maker.pid << " is nobody's";
          const bool may_be =
              owner != nullptr && state.members.at({owner->process, owner->gpu}).is_frozen_by_user;
          // Not of one that is stopped: it may be an MPS client on another GPU only.
          const bool is_wanted = may_be && !machine_.stopped.contains(owner->process);
          constexpr int kMost = 1 + static_cast<int>(ControlledGroup::kMostAgain);
          EXPECT_LE(is.freezes, may_be ? kMost : 0)
              << std::hex << "client " << handle << " group " << name << " channel " << channel
              << (owner == nullptr ? ": nobody's" : ": somebody's, ")
              << (owner == nullptr ? "" : describe(*owner));
          EXPECT_GE(is.freezes, is_wanted && is_known ? 1 : 0)
              << std::hex << "client " << handle << " group " << name << " channel " << channel
              << (owner == nullptr ? ": nobody's" : ": somebody's, ")
              << (owner == nullptr ? "" : describe(*owner));
        }
  }

  NastyMachine machine_{GetParam().seed, 2};
  test::QueuePace pace_{.below = [this](uint32_t n) { return machine_.below(n); }};
  ManualClock clock_;
  test::SchedulerParts parts_;
};

TEST_P(FrozenModel, NothingStaysFrozenWhateverHappens) {
  start();
  for (int action = 0; action < 250 && !HasFailure(); ++action) {
    machine_.act();
    expect_listed("an action of a program");
    if (machine_.below(12) == 0) {  // a good, a bad, or a hopeless time begins
      constexpr int kRates[] = {0, 0, 30, 200, 1000};
      machine_.faults = kRates[machine_.below(5)];
    }
    if (machine_.below(3) == 0)
      for (const ProcessId& process : machine_.living())
        (void)parts_.tenants.set_frozen(process, machine_.below(2) == 0);
    if (machine_.below(40) == 0) {  // the agent dies
      parts_.kill();
      recover(machine_, *parts_.region, machine_);
      expect_listed("a recovery");
      start();
    }
    run_for(20ms * (1 + machine_.below(4)));
  }
  if (HasFailure()) return;
  machine_.faults = 0;
  pace_.may_stall = false;
  run_for(150s, 200ms);  // the longest pauses pass
  expect_as_planned();
  machine_.faults = machine_.below(2) == 0 ? 0 : 300;
  parts_.scheduler->stop();
  expect_listed("a stop");
  machine_.faults = 0;
  recover(machine_, *parts_.region, machine_);
  EXPECT_EQ(machine_.frozen(), 0u);
  EXPECT_TRUE(machine_.stopped.empty());
}

std::vector<FrozenCase> cases(bool is_queued) {
  std::vector<FrozenCase> all;
  const int seeds = test::number_given("GPUSHARE_TEST_FREEZE_SEEDS", 60);
  for (int seed = 0; seed < seeds; ++seed) all.push_back({static_cast<uint32_t>(seed), is_queued});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Seeds, FrozenModel, ::testing::ValuesIn(cases(false)));
INSTANTIATE_TEST_SUITE_P(OfLateDrivers, FrozenModel, ::testing::ValuesIn(cases(true)));

}  // namespace
}  // namespace gpushare
