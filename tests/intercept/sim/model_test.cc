// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "intercept/sim/wire/codec.h"
#include "tests/intercept/sim/programs.h"

namespace gpushare::sim {
namespace {

using namespace std::chrono_literals;

// The first load of a context, before its first work runs.
constexpr Nanos kFirstLoad = 82us;

TEST(Model, KernelsOfAQueueRunInOrderAndTakeTheirTime) {
  Machine machine;
  Program program(machine, 100);
  program.kernel(2ms);
  program.kernel(3ms);
  machine.run_for(1s);
  ASSERT_EQ(machine.finished.size(), 2U);
  EXPECT_EQ(from_ns(machine.finished[0].started_ns), Time(kFirstLoad));
  EXPECT_EQ(from_ns(machine.finished[0].finished_ns), Time(kFirstLoad + 2ms));
  EXPECT_EQ(from_ns(machine.finished[1].finished_ns), Time(kFirstLoad + 5ms));
}

TEST(Model, SmallKernelsOfSeveralQueuesRunAtTheSameTimeLargeOnesShare) {
  Machine machine;
  Program program(machine, 100);
  program.kernel(1ms, 0, kAllSms / 2);
  program.kernel(1ms, 1, kAllSms / 2);
  machine.run_for(10ms);
  EXPECT_EQ(from_ns(machine.finished.at(1).finished_ns), Time(kFirstLoad + 1ms));
  const Time begun = machine.model.now();
  program.kernel(1ms, 0);
  program.kernel(1ms, 1);
  machine.run_for(10ms);
  EXPECT_EQ(from_ns(machine.finished.at(3).finished_ns), begun + 2ms);
}

TEST(Model, AFreezeStopsAKernelInTheMiddleAndIsCounted) {
  Machine machine;
  Program program(machine, 100);
  const uint64_t work = program.endless();
  machine.run_for(10ms);
  const auto channels = program.channels();
  machine.model.freeze(0, channels).value();
  machine.model.freeze(0, channels).value();
  const Nanos frozen_at = program.executed(work);
  EXPECT_GT(frozen_at, 0ns);
  machine.run_for(10ms);
  machine.model.thaw(0, channels).value();
  machine.run_for(10ms);
  EXPECT_EQ(program.executed(work), frozen_at);
  machine.model.thaw(0, channels).value();
  machine.run_for(10ms);
  EXPECT_EQ(program.executed(work), frozen_at + 10ms);
  machine.model.thaw(0, channels).value();  // surplus
  machine.model.freeze(0, channels).value();
  machine.run_for(10ms);
  EXPECT_EQ(program.executed(work), frozen_at + 10ms);
}

TEST(Model, AFrozenChannelThatHasWorkedStopsItsWholeGroup) {
  Machine machine;
  Program program(machine, 100);
  const uint64_t frozen = program.submit(WorkKind::kEndless, 0, 0, 1000);
  const uint64_t beside = program.submit(WorkKind::kEndless, 0, 1, 1000);
  machine.run_for(10ms);
  const Nanos before = program.executed(beside);
  machine.model.freeze(0, std::vector{program.channels()[0]}).value();
  machine.run_for(10ms);
  EXPECT_EQ(program.executed(frozen), before);
  EXPECT_EQ(program.executed(beside), before);
  machine.model.thaw(0, std::vector{program.channels()[0]}).value();
  machine.model.freeze(0, std::vector{program.channels()[7]}).value();  // has never worked
  machine.run_for(10ms);
  EXPECT_EQ(program.executed(beside), before + 10ms);
}

TEST(Model, WorkSubmittedWhileFrozenWaitsForTheThaw) {
  Machine machine;
  Program program(machine, 100);
  machine.model.freeze(0, program.channels()).value();
  program.kernel(1ms);
  machine.run_for(1s);
  EXPECT_TRUE(machine.finished.empty());
  machine.model.thaw(0, program.channels()).value();
  machine.run_for(10ms);
  EXPECT_EQ(machine.finished.size(), 1U);
}

TEST(Model, OfTwoLivelockedOnesTheOtherRunsAtFullSpeedOnceOneIsFrozen) {
  auto&& [machine, one, two] = TwoPrograms();
  one.set_slice(1us);
  two.set_slice(1us);
  const uint64_t first = one.endless();
  const uint64_t second = two.endless();
  machine.run_for(500ms);
  const Nanos at_most_before_the_second_came = 1ms;
  EXPECT_LT(one.executed(first) + two.executed(second), at_most_before_the_second_came);
  machine.model.freeze(0, one.channels()).value();
  const Nanos before = two.executed(second);
  machine.run_for(500ms);
  EXPECT_GT(two.executed(second) - before, 499ms);
}

// This was measured: their channels are in one group, and a group with a frozen channel that has
// worked does not run.
TEST(Model, MpsClientsRunAtTheSameTimeAndStopTogether) {
  auto&& [machine, one, two] = TwoMpsClients();
  const uint64_t first = one.endless(kAllSms / 2);
  const uint64_t second = two.endless(kAllSms / 2);
  machine.run_for(1s);
  EXPECT_GT(one.executed(first), 950ms);
  EXPECT_GT(two.executed(second), 950ms);
  machine.model.freeze(0, one.channels()).value();
  const Nanos frozen_at = one.executed(first);
  const Nanos before = two.executed(second);
  machine.run_for(1s);
  EXPECT_EQ(one.executed(first), frozen_at);
  EXPECT_EQ(two.executed(second), before);
  machine.model.thaw(0, one.channels()).value();
  machine.run_for(1s);
  EXPECT_GT(two.executed(second) - before, 950ms);
}

// Fills these groups of SMs, which are such a part of the GPU.
Work endless_in(uint32_t part, uint64_t groups) {
  Work work{};
  work.kind = WorkKind::kEndless;
  work.sm_ppm = part;
  work.sm_groups = groups;
  work.set_ppm = part;
  return work;
}

// Two of 16 groups are an eighth of the GPU.
TEST(Model, MpsClientsSlowEachOtherWhereTheyAreOnTheSameSms) {
  const auto executed = [](uint64_t groups_of_two) {
    auto&& [machine, one, two] = TwoMpsClients();
    const auto endless = [](Program& program, uint64_t groups) {
      const uint32_t part = kAllSms * static_cast<uint32_t>(std::popcount(groups)) / 16;
      return program.submit(endless_in(part, groups));
    };
    const uint64_t first = endless(one, 0b0011), second = endless(two, groups_of_two);
    machine.run_for(1s);
    return std::pair(one.executed(first), two.executed(second));
  };
  const auto apart = executed(0b1100), same = executed(0b0011), half = executed(0b0110);
  EXPECT_GT(apart.first, 950ms);
  EXPECT_GT(apart.second, 950ms);
  EXPECT_NEAR(static_cast<double>(same.first / 1ms), 490, 20) << "half of the SMs are the other's";
  EXPECT_NEAR(static_cast<double>(same.second / 1ms), 490, 20);
  EXPECT_NEAR(static_cast<double>(half.first / 1ms), 735, 25) << "one of the two is";
}

TEST(Model, AKernelInTheWholeGpuIsSlowedByOneInAPartOfIt) {
  auto&& [machine, one, two] = TwoMpsClients();
  const uint64_t first = one.endless();
  const uint64_t second = two.submit(endless_in(kAllSms / 4, 0b1111));
  machine.run_for(1s);
  EXPECT_NEAR(static_cast<double>(one.executed(first) / 1ms), 860, 30) << "half speed in a quarter";
  EXPECT_NEAR(static_cast<double>(two.executed(second) / 1ms), 490, 20);
}

TEST(Model, ANeighbourRunsOnWhenTheFrozenMpsClientHasNeverWorkedOrIsGone) {
  Machine machine;
  Program one(machine, 100, 0, 7);
  const uint64_t work = one.endless();
  {
    Program two(machine, 200, 0, 7);
    machine.model.freeze(0, two.channels()).value();
    machine.run_for(100ms);
    EXPECT_GT(one.executed(work), 99ms);
    machine.model.thaw(0, two.channels()).value();
    two.endless();
    machine.run_for(1ms);
    machine.model.freeze(0, two.channels()).value();
    machine.model.close_client(two.client);
  }
  const Nanos before = one.executed(work);
  machine.run_for(100ms);
  EXPECT_GT(one.executed(work) - before, 99ms);
}

TEST(Model, TheLogNamesTheMpsServerForAllItsClients) {
  auto&& [machine, one, two] = TwoMpsClients();
  Program alone(machine, 300);
  one.endless();
  two.endless();
  alone.endless();
  machine.run_for(100ms);
  uint64_t place = 0;
  const auto batch = machine.model.switch_log(0).read(place, 1000, machine.model.now());
  std::set<pid_t> pids;
  for (const SwitchRecord& record : batch.records) pids.insert(record.pid);
  EXPECT_EQ(pids, (std::set<pid_t>{7, 300}));
}

TEST(Model, CopiesRunBesideKernelsAtLineRate) {
  auto&& [machine, one, two] = TwoPrograms();
  one.endless();
  const uint64_t bytes = 55'200'000;  // 1 ms
  two.submit(WorkKind::kCopy, bytes, 0, 0, Direction::kHostToDevice);
  two.submit(WorkKind::kCopy, bytes, 1, 0, Direction::kDeviceToHost);
  machine.run_for(100ms);
  ASSERT_EQ(machine.finished.size(), 2U);
  EXPECT_EQ(machine.finished[0].finished_ns, 1'000'000U);
  EXPECT_EQ(machine.finished[1].finished_ns, 1'000'000U) << "each way its own engine";
}

TEST(Model, AWaitOrdersQueuesAndAGateHoldsOne) {
  Machine machine;
  Program program(machine, 100);
  const uint64_t first = program.kernel(5ms, 0);
  program.submit(WorkKind::kWait, first, 1);
  const uint64_t second = program.kernel(1ms, 1);
  machine.run_for(20ms);
  ASSERT_EQ(machine.finished.size(), 3U);
  EXPECT_EQ(machine.finished[2].sequence, second);
  EXPECT_EQ(machine.finished[2].started_ns, machine.finished[0].finished_ns);

  const uint64_t gate = program.submit(WorkKind::kGate, 0, 0);
  const uint64_t behind = program.submit(WorkKind::kMarker, 0, 0);
  machine.run_for(20ms);
  EXPECT_EQ(machine.finished.size(), 3U);
  machine.model.stop(program.client, gate);
  ASSERT_EQ(machine.finished.size(), 5U);
  EXPECT_EQ(machine.finished[4].sequence, behind);
}

TEST(Model, AnEndlessKernelEndsWhenStoppedAndWhileFrozenOnlyAfterTheThaw) {
  Machine machine;
  Program program(machine, 100);
  const uint64_t first = program.endless();
  machine.run_for(1ms);
  machine.model.stop(program.client, first);
  machine.run_for(1us);
  EXPECT_EQ(machine.finished.size(), 1U);
  const uint64_t second = program.endless();
  machine.run_for(1ms);
  machine.model.freeze(0, program.channels()).value();
  machine.model.stop(program.client, second);
  machine.run_for(1s);
  EXPECT_EQ(machine.finished.size(), 1U);
  machine.model.thaw(0, program.channels()).value();
  machine.run_for(1us);
  EXPECT_EQ(machine.finished.size(), 2U);
}

TEST(Model, MalformedWorkCompletesWithAStatusAndNothingElse) {
  Machine machine;
  Program program(machine, 100);
  program.submit(WorkKind::kKernel, 1000, 0, 0);
  program.submit(WorkKind::kKernel, 1000, 0, kAllSms + 1);
  program.submit(WorkKind::kCopy, 1000, 0, 0, Direction::kNone);
  program.submit(static_cast<WorkKind>(99), 0);
  ASSERT_EQ(machine.finished.size(), 4U);
  for (const Completion& each : machine.finished)
    EXPECT_EQ(each.status, static_cast<uint32_t>(EINVAL));
}

TEST(Model, GpusAreIndependent) {
  Machine machine(2);
  Program one(machine, 100, 0);
  Program two(machine, 200, 1);
  const uint64_t first = one.endless();
  const uint64_t second = two.endless();
  machine.run_for(1s);
  EXPECT_EQ(one.executed(first), 1s - kFirstLoad);
  EXPECT_EQ(two.executed(second), 1s - kFirstLoad);
  EXPECT_EQ(machine.model.freeze(1, one.channels()).error().code, std::errc::no_such_process)
      << "a channel of another GPU";
}

TEST(Model, AProcessOnTwoGpusHasOneClientAndADeviceOnEach) {
  Machine machine(2);
  Program program(machine, 100, 0);
  machine.model.create_context(program.client, 1).value();
  size_t clients = 0;
  std::set<uint32_t> devices;
  std::map<uint32_t, size_t> groups;
  for (const DriverEvent& event : machine.events) {
    clients += std::holds_alternative<ClientCreated>(event.what);
    if (const auto* device = std::get_if<DeviceCreated>(&event.what))
      devices.insert(device->device);
    if (const auto* group = std::get_if<GroupCreated>(&event.what)) ++groups[group->device];
  }
  EXPECT_EQ(clients, 1U);
  EXPECT_EQ(devices.size(), 2U);
  for (const uint32_t device : devices) EXPECT_EQ(groups[device], 4U);
}

TEST(Model, ARunawayDestroysNothingOfOthers) {
  Machine machine;
  auto one = std::make_unique<Program>(machine, 100);
  Program two(machine, 200);
  one->endless();
  const uint64_t work = two.endless();
  machine.run_for(100ms);
  machine.model.freeze(0, one->channels()).value();
  machine.model.close_client(one->client);
  const Nanos before = two.executed(work);
  machine.run_for(1s);
  EXPECT_GE(two.executed(work) - before, 997ms);
  EXPECT_EQ(machine.model.users(), std::vector<pid_t>{200});
  EXPECT_TRUE(std::holds_alternative<ProcessClosed>(machine.events.back().what));
}

TEST(Model, DestroyingAContextReleasesThoseWhoWaitForItsWork) {
  Machine machine;
  Program program(machine, 100);
  const uint64_t work = program.endless();
  const ContextReply other = machine.model.create_context(program.client, 0).value();
  machine.model.submit(program.client, {.sequence = 900,
                                        .context = other.context,
                                        .queue = 0,
                                        .kind = WorkKind::kWait,
                                        .direction = Direction::kNone,
                                        .amount = work,
                                        .sm_ppm = 0,
                                        .ranks = 0,
                                        .communicator = 0});
  machine.run_for(1ms);
  EXPECT_TRUE(machine.finished.empty());
  EXPECT_TRUE(machine.model.destroy_context(program.client, program.context.context).has_value());
  ASSERT_EQ(machine.finished.size(), 1U);
  EXPECT_EQ(machine.finished[0].sequence, 900U);
}

TEST(Model, UtilisationTellsBusyFromResident) {
  Machine machine;
  Program busy(machine, 100);
  Program idle(machine, 200);
  busy.endless();
  EXPECT_TRUE(machine.model.utilisation(0).of.empty()) << "nothing is known yet";
  machine.run_for(1s);
  EXPECT_TRUE(machine.model.utilisation(0).of.empty()) << "it comes late";
  machine.run_for(100ms);
  EXPECT_TRUE(machine.model.utilisation(0).of.empty()) << "nothing is new";
  machine.run_for(100ms);
  const UtilisationSample sample = machine.model.utilisation(0);
  std::map<pid_t, double> use;
  for (const Utilisation& each : sample.of) use[each.pid] = each.sm_fraction;
  EXPECT_NEAR(use[100], 1.0, 0.001);
  EXPECT_EQ(use[200], 0.0);
  EXPECT_EQ(sample.until - sample.from, 1s);
  EXPECT_EQ(machine.model.now() - sample.until, 200ms);
}

TEST(Model, AttachTellsWhatTheEventsTold) {
  Machine machine;
  Program program(machine, 100);
  machine.model.allocate(program.client, program.context.context, 12345).value();
  const auto attached = machine.model.attach(100);
  ASSERT_EQ(attached.size(), machine.events.size());
  for (size_t i = 0; i < attached.size(); ++i) {
    DriverEvent seen = machine.events[i];
    seen.time = attached[i].time;
    if (std::holds_alternative<ProcessOpened>(seen.what)) seen.what = ProcessOpened{};  // as on RM
    const Event a = encode(seen);
    const Event b = encode(attached[i]);
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << i;
  }
}

TEST(Model, TheSameScriptGivesTheSameRun) {
  const auto run = [] {
    auto&& [machine, one, two] = TwoPrograms();
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
      Program& program = random() % 2 == 0 ? one : two;
      program.kernel(Nanos(1000 + random() % 1'000'000), random() % 12, 1 + random() % kAllSms);
      machine.run_for(Nanos(random() % 500'000));
    }
    machine.run_for(10s);
    std::vector<uint64_t> ends;
    for (const Completion& each : machine.finished) ends.push_back(each.finished_ns);
    return ends;
  };
  const auto first = run();
  EXPECT_EQ(first.size(), 300U);
  EXPECT_EQ(first, run());
}

std::vector<std::unique_ptr<Program>> several(Machine& machine, pid_t count) {
  std::vector<std::unique_ptr<Program>> programs;
  for (pid_t pid = 1; pid <= count; ++pid)
    programs.push_back(std::make_unique<Program>(machine, pid));
  return programs;
}

TEST(Model, TimeOfTheGraphicsEngineIsConservedAndTheLogAgrees) {
  Machine machine;
  const auto programs = several(machine, 4);
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    Program& program = *programs[random() % 4];
    switch (random() % 5) {
      case 0:
        machine.model.freeze(0, program.channels()).value();
        break;
      case 1:
        machine.model.thaw(0, program.channels()).value();
        break;
      case 2:
        program.set_slice(Micros(random() % 2 == 0 ? 1 : 1 + random() % 5000));
        break;
      default:
        program.kernel(Nanos(random() % 5'000'000), random() % 9, 1 + random() % kAllSms);
    }
    machine.run_for(Nanos(random() % 3'000'000));
  }
  const auto totals = machine.model.graphics_totals(0);
  EXPECT_EQ(totals.resident + totals.changing + totals.empty, machine.model.now() - Time{});
  uint64_t place = 0;
  const auto log = machine.model.switch_log(0).read(place, 1 << 20, machine.model.now());
  Nanos resident{};
  for (size_t i = 0; i < log.records.size(); ++i) {
    ASSERT_EQ(log.records[i].is_start, i % 2 == 0);
    if (i % 2 == 0) continue;
    EXPECT_EQ(log.records[i].pid, log.records[i - 1].pid);
    resident += log.records[i].time - log.records[i - 1].time;
  }
  if (log.records.size() % 2 == 1) resident += machine.model.now() - log.records.back().time;
  EXPECT_EQ(resident, totals.resident);
}

TEST(Model, NoCompletionComesBeforeItIsAnnounced) {
  Machine machine;
  const auto programs = several(machine, 5);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    programs[random() % 5]->kernel(Nanos(random() % 3'000'000), random() % 3);
    const Time quiet = machine.model.quiet_until();
    const size_t had = machine.finished.size();
    const Time until = std::min(quiet - 1ns, machine.model.now() + 700us);
    machine.model.advance_to(until);
    EXPECT_EQ(machine.finished.size(), had);
    machine.run_for(400us);
  }
  while (machine.finished.size() < 200) machine.model.advance_to(machine.model.quiet_until());
}

TEST(SwitchLog, ASlowReaderLearnsWhatItLost) {
  SwitchLog log(10);
  uint64_t slow = 0;
  uint64_t quick = 0;
  for (int i = 0; i < 15; ++i) {
    log.append({Time(Nanos(i)), 0, 1, 2, i % 2 == 0});
    EXPECT_EQ(log.read(quick, 100, Time(Nanos(i))).records.size(), 1U);
  }
  const SwitchBatch batch = log.read(slow, 100, Time(1s));
  EXPECT_EQ(batch.lost, 5U);
  EXPECT_EQ(batch.records.size(), 10U);
  EXPECT_EQ(batch.records.front().time, Time(Nanos(5)));
  EXPECT_EQ(batch.complete_until, Time(1s));
}

TEST(Codec, EveryEventSurvivesTheWire) {
  using What = decltype(DriverEvent::what);
  const std::vector<What> all{
      ProcessOpened{12, 0x1234567890, 1000, "fifteen-letters"},
      ClientCreated{0xC1D00001, 9},
      DeviceCreated{1, 2, 3},
      GroupCreated{1, 2, 3, Engine::kCopy, 11},
      ChannelCreated{1, 2, 3, 0xC86F},
      MemoryAllocated{1, 2, 3, uint64_t{5} << 33, true},
      ObjectFreed{1, 2},
      ControlMade{1, 2, 0xA06C0103, 4, 2048},
      ProcessClosed{true},
      ProcessClosed{.status = 9},
      EventsLost{77},
      ChannelsSwitched{true, {{1, 2}}},
  };
  std::set<size_t> kinds;
  for (const What& what : all) kinds.insert(what.index());
  ASSERT_EQ(kinds.size(), std::variant_size_v<What>) << "each kind of event is here";
  for (size_t i = 0; i < all.size(); ++i) {
    DriverEvent event;
    event.time = Time(123s);
    event.process = {42, 4711};
    event.what = all[i];
    const Event wire = encode(event);
    const auto back = decode(wire);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->what.index(), all[i].index());
    EXPECT_EQ(back->time, event.time);
    EXPECT_EQ(back->process, event.process);
    const Event again = encode(*back);
    EXPECT_EQ(std::memcmp(&wire, &again, sizeof wire), 0) << i;
  }
  Event unknown{};
  unknown.what = 99;
  EXPECT_FALSE(decode(unknown).has_value());
}

// The hardware keeps the engine for a context while its channel has more to run.
TEST(Model, QueuedKernelsOfOneStreamKeepTheirTurn) {
  Machine machine;
  Program queued(machine, 1), beside(machine, 2);
  const uint64_t endless = beside.endless();
  for (int i = 0; i < 20'000; ++i) queued.kernel(50us);
  machine.run_for(1s);
  const double share = static_cast<double>(machine.finished.size()) * 50e-6 /
                       (static_cast<double>(machine.finished.size()) * 50e-6 +
                        std::chrono::duration<double>(beside.executed(endless)).count());
  EXPECT_NEAR(share, 0.5, 0.01);
}

}  // namespace
}  // namespace gpushare::sim
