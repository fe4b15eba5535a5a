// SPDX-License-Identifier: Apache-2.0
// How programs are found that no event told of, and whose they are, on a simulated GPU in virtual
// time.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/sched/enforce/late_line.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::kPoint;
using test::SchedulerRig;

TEST(SchedulerFinding, AProgramThatWasThereBeforeIsItsUsersAndNotRoots) {
  SchedulerRig rig;
  sim::Program program(rig.machine, 700);
  program.endless();
  rig.processes.add(program.process, "train", 1000);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // nobody was watching
  ASSERT_TRUE(rig.tenants.reload(
      {.tenants = {{"alice", {}}}, .rules = {{"alice", {}, "alice", {}}, {"root", {}, "0", {}}}}));
  rig.start();
  rig.run_for(500ms);
  EXPECT_EQ(rig.tenants.tenant_of(program.process), *rig.tenants.find("alice"));
  // No event told of it: /proc does.
  EXPECT_EQ(rig.record(program).uid, 1000u);
  EXPECT_STREQ(rig.record(program).command, "train");
}

TEST(SchedulerFinding, WhatEndedWhileTheGpusWereLostIsSeenToHaveEnded) {
  SchedulerRig rig;
  rig.start();
  sim::Program& program = rig.add_busy("default", {});
  ASSERT_TRUE(rig.tenants.create_transient(program.process, {}));
  rig.run_for(200ms);
  ASSERT_EQ(rig.records(), 1u);
  rig.kill();  // the scheduler; the agent lives, and keeps its tenants
  rig.machine.model.close_client(program.client);
  rig.processes.dead[program.process.pid] = true;
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));
  rig.start();
  rig.run_for(2s);
  EXPECT_EQ(rig.tenants.slots().size(), 1u) << "the transient tenant has gone";
}

TEST(SchedulerFinding, FindsProgramsThatWereThereBefore) {
  SchedulerRig rig;
  rig.add_busy("a", {{"weight", "300"}});
  rig.add_busy("b", {{"weight", "100"}});
  rig.machine.run_for(1s);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // nobody was watching
  rig.start();
  rig.run_for(2s);
  const auto shares = rig.measure(3s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.75, kPoint);
  EXPECT_EQ(rig.record(*rig.programs[0]).is_late_attach, 1u);
}

TEST(SchedulerFinding, FindsProgramsWithoutAnObserver) {
  SchedulerRig rig;
  rig.start(/*with_observer=*/false);
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.run_for(1500ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(SchedulerFinding, LooksAgainAfterEventsWereLost) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.observer.lose_pending();
  rig.run_for(500ms);  // finding it takes 100 ms of work, in steps of half a millisecond
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(SchedulerFinding, LooksAtWhoUsesTheDriverAndWasNotSeenToMakeAGroup) {
  SchedulerRig rig;
  rig.start();
  rig.step();  // it has looked at all that were there before
  sim::Program program(rig.machine, 500);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // as when its MPS server makes them
  rig.run_for(2s);
  EXPECT_EQ(rig.records(), 0u) << "nothing is known of it";
  ASSERT_TRUE(rig.machine.model.allocate(program.client, program.context.context, 1 << 20));
  rig.run_for(1100ms);
  EXPECT_EQ(rig.records(), 1u);
}

// What the rule asks of the process, which `add` describes, is known only when nothing is late.
void expect_found_later(SchedulerRig& rig, const Rule& rule, bool& is_late,
                        const std::function<void(const ProcessId&)>& add) {
  TenantsConfig config;
  config.tenants.push_back({.name = rule.tenant, .settings = {}});
  config.rules.push_back(rule);
  ASSERT_TRUE(rig.tenants.reload(config));
  is_late = true;
  rig.start();
  sim::Program program(rig.machine, 500, 0);
  add(program.process);
  rig.run_for(2s);
  const auto tenant = [&] { return rig.tenants.at(rig.tenants.tenant_of(program.process))->name; };
  EXPECT_EQ(tenant(), "default");
  is_late = false;
  rig.run_for(2s);
  EXPECT_EQ(tenant(), rule.tenant);
}

// Whether it is the user's process, or stands in a user namespace of the user's.
struct UserRow {
  const char* description;
  uid_t uid;
  std::vector<uid_t> owners;
};
class LateName : public testing::TestWithParam<UserRow> {};
INSTANTIATE_TEST_SUITE_P(All, LateName,
                         testing::Values(UserRow{"own", 1000, {}},
                                         UserRow{"in_a_namespace", 100'000, {1002, 1000}}),
                         [](const auto& row) { return row.param.description; });

TEST_P(LateName, ARuleByUserHoldsAlsoWhenTheNameServiceIsLate) {
  SchedulerRig rig;
  expect_found_later(rig, {.tenant = "theirs", .cgroup = {}, .user = "alice", .command = {}},
                     rig.processes.is_name_service_late, [&](const ProcessId& process) {
                       rig.processes.add(process, "serve", GetParam().uid).owners =
                           GetParam().owners;
                     });
}

TEST(SchedulerFinding, ARuleByContainerHoldsAlsoWhenTheDiskIsLate) {
  SchedulerRig rig;
  Rule rule{.tenant = "theirs", .cgroup = {}, .user = {}, .command = {}};
  rule.container = "web";
  rule.label = "team=vision";
  expect_found_later(rig, rule, rig.processes.is_disk_late, [&](const ProcessId& process) {
    rig.processes.add(process, "serve").cgroup = "/docker/1";
    rig.processes.containers["/docker/1"] =
        std::make_shared<Container>(Container{.names = {"web"}, .labels = {{"team", "vision"}}});
  });
}

// It is unknown where reading it takes too long, as on a machine that is busy (SystemProcReader).
TEST(SchedulerFinding, ACommandLineThatCannotBeReadInTimeIsReadLater) {
  SchedulerRig rig;
  TenantsConfig config;
  config.tenants.push_back({.name = "theirs", .settings = {}});
  config.rules.push_back({.tenant = "theirs", .cgroup = {}, .user = {}, .command = "*--serve*"});
  ASSERT_TRUE(rig.tenants.reload(config));
  rig.start();
  sim::Program program(rig.machine, 500, 0);
  ProcessDetails& details = rig.processes.add(program.process, "python");
  details.command_line.clear();
  rig.run_for(2s);
  const auto tenant = [&] { return rig.tenants.at(rig.tenants.tenant_of(program.process))->name; };
  ASSERT_EQ(rig.records(), 1u);
  EXPECT_EQ(tenant(), "default");
  details.command_line = "python app.py --serve";
  rig.run_for(2s);
  EXPECT_EQ(tenant(), "theirs");
  EXPECT_STREQ(rig.record(program).command_line, "python app.py --serve");
}

// A program can rewrite the arguments of its calls before the probe reads them, so that no event
// tells of what it makes.
TEST(SchedulerFinding, WhoRunsUnseenIsFoundByTheSwitchLog) {
  SchedulerRig rig;
  rig.run_busy({{"a", {}}}, 1s);
  rig.add_busy("hidden", {{"max", "20%"}});
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));
  rig.run_for(3s);
  EXPECT_NE(rig.record(*rig.programs[1]).pid, 0) << "it is known";
  EXPECT_NEAR(rig.measure(5s)[1], 0.2, 0.02) << "and held to its cap";
}

// A program that is known, and has a second context that no event told of. Its first one is idle.
struct HiddenContext {
  explicit HiddenContext(SchedulerRig& on, sim::Program& of) : rig(on), program(of) {}
  // The second context gets work without an end.
  void begin() {
    sim::Model& model = rig.machine.model;
    const sim::ContextReply made =
        model.create_context(program.client, 0, /*mps_server=*/0, /*is_hidden=*/true).value();
    sequence = rig.machine.next_sequence++;
    model.submit(program.client, {sequence, made.context, 0, sim::WorkKind::kEndless,
                                  sim::Direction::kNone, 0, sim::kAllSms, 0, 0});
  }
  double share(Nanos time) {
    const Nanos before = program.executed(sequence);
    rig.run_for(time);
    return std::chrono::duration<double>(program.executed(sequence) - before) / time;
  }

  SchedulerRig& rig;
  sim::Program& program;
  uint64_t sequence = 0;
};

TEST(SchedulerFinding, AHiddenSecondContextIsFrozenToo) {
  SchedulerRig rig;
  rig.run_busy({{"other", {}}}, 500ms);
  HiddenContext hidden(rig, rig.add("capped", {{"max", "5%"}}));
  rig.run_for(500ms);
  hidden.begin();
  rig.run_for(2s);
  EXPECT_NEAR(hidden.share(5s), 0.05, 0.01) << "its cap holds";
  ASSERT_TRUE(rig.tenants.set_frozen(hidden.program.process, true));
  rig.run_for(500ms);
  hidden.begin();
  rig.run_for(2s);
  EXPECT_EQ(hidden.share(1s), 0) << "a freeze by hand holds for what comes after it";
}

// The switch log says nothing of a context that is alone: the driver's samples do.
TEST(SchedulerFinding, AHiddenSecondContextThatIsAloneIsFrozenToo) {
  SchedulerRig rig;
  rig.start();
  HiddenContext hidden(rig, rig.add("capped", {{"max", "5%"}}));
  rig.run_for(500ms);
  hidden.begin();
  rig.run_for(10s);
  EXPECT_LE(hidden.share(10s), 0.06);
}

// Each hidden context is found at the price of a search, and what it did before is charged.
TEST(SchedulerFinding, WhoHidesOneContextAfterTheOtherGainsNothing) {
  SchedulerRig rig;
  rig.run_busy({{"other", {}}}, 500ms);
  HiddenContext hidden(rig, rig.add("capped", {{"max", "5%"}}));
  rig.run_for(500ms);
  Nanos ran{};
  constexpr int kContexts = 30;
  for (int i = 0; i < kContexts; ++i) {
    hidden.begin();
    rig.run_for(1s);
    ran += hidden.program.executed(hidden.sequence);
    rig.machine.model.stop(hidden.program.client, hidden.sequence);
  }
  EXPECT_LE(std::chrono::duration<double>(ran).count(), 0.07 * kContexts);
}

// What is frozen and honest is not searched again and again.
TEST(SchedulerFinding, WhoStandsStillAsItShouldIsNotLookedFor) {
  SchedulerRig rig;
  rig.run_busy({{"other", {}}, {"capped", {{"max", "20%"}}}, {"frozen", {}}}, 1s);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[2]->process, true));
  rig.run_for(3s);
  const uint64_t searches = rig.gpu.searches();
  rig.run_for(30s);
  EXPECT_EQ(rig.gpu.searches(), searches);
}

// Hands the model's events on when it is told to: what a program makes is examined first, which
// takes as long as other programs hold the driver's lock.
class LateObserver final : public Observer {
 public:
  explicit LateObserver(Observer& events) : events_(events) {}
  using Observer::drain;
  int fd() const override { return events_.fd(); }
  uint64_t dropped() const override { return 0; }
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override {
    if (is_late) return 0;
    if (loser.pid != 0) sink({MonotonicClock().now(), std::exchange(loser, {}), EventsLost{1}});
    return events_.drain(sink, most);
  }
  bool is_late = false;
  ProcessId loser;  // tells that events of it were lost

 private:
  Observer& events_;
};

// A rig with a driver whose calls take a while and are made on lines.
struct LateRig : SchedulerRig {
  LateRig() {
    make_line = test::late_lines(call);
    SchedulerParts::start(gpu, &late, clock);
  }
  const Nanos call = 3ms;  // of the driver
  LateObserver late{observer};
};

// The switch log tells of it before its events do.
TEST(SchedulerFinding, WhoIsFrozenAndWasKnownLateIsNotThawedForAMoment) {
  LateRig rig;
  rig.run_for(1200ms);  // what is done each second has just been done
  rig.late.is_late = true;
  rig.add_busy("a", {});
  rig.add_busy("b", {});
  rig.run_for(300ms);
  rig.late.is_late = false;
  rig.run_for(200ms);
  ASSERT_NE(rig.record(*rig.programs[0]).pid, 0) << "it is known before it is looked for";
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, true));
  for (int i = 0; i < 100 && rig.record(*rig.programs[0]).freezes == 0; ++i) rig.run_for(5ms);
  const Nanos ran = rig.programs[0]->executed(rig.work[0]);
  rig.run_for(5s);
  EXPECT_EQ(rig.programs[0]->executed(rig.work[0]), ran);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 1u);
}

// As one that claims what it does not have, or makes and frees faster than it is examined.
TEST(SchedulerFinding, WhoLosesEventsStaysFrozen) {
  LateRig rig;
  rig.add_busy("a", {});
  rig.run_for(1s);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, true));
  for (int i = 0; i < 100 && rig.record(*rig.programs[0]).freezes == 0; ++i) rig.run_for(5ms);
  const Nanos ran = rig.programs[0]->executed(rig.work[0]);
  for (int i = 0; i < 10; ++i) {
    rig.late.loser = rig.programs[0]->process;
    rig.run_for(2s);
  }
  EXPECT_EQ(rig.programs[0]->executed(rig.work[0]), ran);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, false));
  rig.run_for(1s);
  EXPECT_NEAR(rig.measure(1s)[0], 1.0, kPoint);
}

}  // namespace
}  // namespace gpushare
