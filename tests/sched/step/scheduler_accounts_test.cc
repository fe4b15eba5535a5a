// SPDX-License-Identifier: Apache-2.0
// Who is charged for what, when programs come and go, on a simulated GPU in virtual time.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <tuple>

#include "tests/sched/enforce/late_line.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

// Programs of one tenant, each of which ends when it has worked for so long; the next one begins at

double run_short_programs(SchedulerRig& rig, const std::string& tenant, Nanos work, Nanos time) {
  static pid_t pid = 5000;
  Nanos done{};
  const Time end = rig.machine.model.now() + time;
  while (rig.machine.model.now() < end) {
    sim::Program program(rig.machine, pid++);
    EXPECT_TRUE(rig.tenants.attach(program.process, tenant));
    const uint64_t kernel = program.kernel(work);
    bool has_ended = false;
    rig.machine.then[kernel] = [&](const sim::Completion&) { has_ended = true; };
    while (!has_ended && rig.machine.model.now() < end) rig.run_for(1ms);
    done += program.executed(kernel);
    if (has_ended) done += work;
    rig.machine.then.erase(kernel);
    rig.machine.model.close_client(program.client);
  }
  return std::chrono::duration<double>(done) / time;
}

double charged(const SchedulerRig& rig, const std::string& tenant) {
  const auto use = rig.scheduler->state().tenant_use.find(*rig.tenants.find(tenant));
  if (use == rig.scheduler->state().tenant_use.end()) return 0;
  return std::chrono::duration<double>(use->second.used[0]).count();
}

TenantUse use_of(const SchedulerRig& rig, const std::string& tenant) {
  const auto& uses = rig.scheduler->state().tenant_use;
  const auto use = uses.find(*rig.tenants.find(tenant));
  return use == uses.end() ? TenantUse{} : use->second;
}

// As while many programs start: the log of what a program did comes long after its end.
TEST(SchedulerAccounts, AProgramThatHasEndedIsChargedForWhatALateLogTells) {
  const Nanos delay = 700ms;
  SchedulerRig rig;
  rig.make_line = test::late_lines(delay);
  rig.start();
  ASSERT_TRUE(rig.tenants.set("job", {}, /*create=*/true));
  const double ran = run_short_programs(rig, "job", 50ms, 3s) * 3;
  rig.run_for(3s);
  ASSERT_GT(ran, 2);
  EXPECT_NEAR(charged(rig, "job"), ran, 0.05 * ran);
}

TEST(SchedulerAccounts, SharesAndCapsHoldThoughTheDriverAnswersLate) {
  const Nanos delay = 100ms;
  SchedulerRig rig;
  rig.make_line = test::late_lines(delay);
  rig.start();
  rig.add_busy("heavy", {{"weight", "300"}});
  rig.add_busy("light", {{"weight", "100"}});
  rig.add_busy("capped", {{"weight", "1000"}, {"max", "200000 1000000"}});
  rig.run_for(5s);
  const std::vector<double> shares = rig.measure(20s);
  EXPECT_NEAR(shares[2], 0.2, 0.04);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.75, 0.05);
}

TEST(SchedulerAccounts, CountersOfATenantGoOnUnderTheNextAgent) {
  SchedulerRig rig;
  rig.start();
  ASSERT_TRUE(rig.tenants.set("job", std::vector<Setting>{{"max", "50%"}}, /*create=*/true));
  ASSERT_TRUE(rig.tenants.set("other", {}, /*create=*/true));
  run_short_programs(rig, "job", 30ms, 3s);
  run_short_programs(rig, "other", 30ms, 1s);
  rig.run_for(1s);  // all is published
  const double used = charged(rig, "job");
  ASSERT_GT(used, 1);
  rig.kill();
  // Whoever has a slot under another name has used nothing.
  ASSERT_TRUE(rig.tenants.remove("other"));
  rig.tenants.reuse_slots();
  ASSERT_TRUE(rig.tenants.set("new", {}, /*create=*/true));
  rig.start();
  rig.run_for(100ms);
  EXPECT_DOUBLE_EQ(charged(rig, "job"), used);
  const auto& uses = rig.scheduler->state().tenant_use;
  EXPECT_GT(uses.at(*rig.tenants.find("job")).throttled, 0ns);
  EXPECT_EQ(charged(rig, "new"), 0);
}

TEST(SchedulerAccounts, ATenantOfShortProgramsHasNoMoreThanItsCap) {
  struct Row {
    const char* cap;
    double part;
    Nanos work;
  };
  for (const Row& row : {Row{"10%", 0.1, 50ms},
                         {"50%", 0.5, 80ms},
                         {"30%", 0.3, 30ms},
                         {"10%", 0.1, 5ms},
                         {"10%", 0.1, 2ms}}) {
    SchedulerRig rig;
    rig.start();
    const std::vector<Setting> capped{{"max", row.cap}};
    ASSERT_TRUE(rig.tenants.set("capped", capped, /*create=*/true));
    const double share = run_short_programs(rig, "capped", row.work, 5s);
    EXPECT_LE(share, 1.1 * row.part) << row.cap << ' ' << row.work / 1ms << " ms";
    EXPECT_GE(share, 0.85 * row.part) << row.cap << ' ' << row.work / 1ms << " ms";
    rig.run_for(300ms);
    EXPECT_NEAR(charged(rig, "capped") / 5, share, 0.02) << row.cap << ' ' << row.work / 1ms;
  }
}

// A program that is killed, and one that ends by itself and frees what it has before it is gone.
TEST(SchedulerAccounts, AProgramThatComesAndGoesBetweenTwoStepsIsItsTenants) {
  for (const bool frees : {false, true}) {
    SchedulerRig rig;
    rig.start();
    rig.run_for(10ms);
    ASSERT_TRUE(rig.tenants.set("quick", {}, /*create=*/true));
    {
      sim::Program program(rig.machine, 700);
      ASSERT_TRUE(rig.tenants.attach(program.process, "quick"));
      program.kernel(20ms);
      rig.machine.run_for(30ms);  // the agent is busy elsewhere
      if (frees)
        ASSERT_TRUE(rig.machine.model.destroy_context(program.client, program.context.context));
      rig.machine.model.close_client(program.client);
    }
    rig.run_for(300ms);
    EXPECT_NEAR(charged(rig, "quick"), 0.03, 0.001)
        << "alone it stays on the GPU to its end; frees: " << frees;
    EXPECT_TRUE(rig.scheduler->state().members.empty());
    EXPECT_TRUE(rig.scheduler->state().departed.empty()) << "not for ever";
  }
}

TEST(SchedulerAccounts, WhatTheLogSaysOfAPidIsItsBearersAtThatTime) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(10ms);
  for (const char* tenant : {"first", "second"})
    ASSERT_TRUE(rig.tenants.set(tenant, {}, /*create=*/true));
  sim::Model& model = rig.machine.model;
  for (const auto& [tenant, start, work] :
       {std::tuple{"first", 1U, 40ms}, std::tuple{"second", 2U, 10ms}}) {
    const ProcessId process{700, start};
    rig.processes.add(process, "program");
    ASSERT_TRUE(rig.tenants.attach(process, tenant));
    const uint32_t client = model.open_client(process, {});
    const auto context = model.create_context(client, 0).value();
    model.submit(client, {.sequence = start,
                          .context = context.context,
                          .queue = 0,
                          .kind = sim::WorkKind::kKernel,
                          .direction = sim::Direction::kNone,
                          .amount = static_cast<uint64_t>(Nanos(work).count()),
                          .sm_ppm = sim::kAllSms,
                          .ranks = 0,
                          .communicator = 0});
    rig.run_for(work + 5ms);
    model.close_client(client);
  }
  rig.run_for(300ms);
  EXPECT_NEAR(charged(rig, "first"), 0.045, 0.002);
  EXPECT_NEAR(charged(rig, "second"), 0.015, 0.002);
}

// As after a restart of the agent, which has not found everybody yet.
TEST(SchedulerAccounts, WhatAnUnknownBearerOfItsPidDidIsNotItsUse) {
  SchedulerRig rig;
  {
    sim::Program before(rig.machine, 700);
    before.endless();
    rig.start();
    rig.machine.run_for(60ms);  // the agent is busy elsewhere
    rig.machine.model.close_client(before.client);
    rig.observer.lose_pending();
  }
  const ProcessId process{700, 2};
  rig.processes.add(process, "program");
  ASSERT_TRUE(rig.tenants.set("next", {}, /*create=*/true));
  ASSERT_TRUE(rig.tenants.attach(process, "next"));
  sim::Model& model = rig.machine.model;
  const uint32_t client = model.open_client(process, {});
  const auto context = model.create_context(client, 0).value();
  rig.machine.run_for(1ms);
  model.touch(client, context.context, 10ms);
  rig.run_for(20ms);
  model.close_client(client);
  rig.run_for(300ms);
  EXPECT_NEAR(charged(rig, "next"), 0.02, 0.003) << "alone it stays on the GPU to its end";
  EXPECT_TRUE(rig.scheduler->state().departed.empty());
}

// It works and rests, so that what is presumed of it is often wrong; and samples tell of what it
// did before it moved after it has.
TEST(SchedulerAccounts, WhatAProgramDidAloneBeforeItMovedStaysTheOtherTenants) {
  SchedulerRig rig;
  rig.start();
  sim::Program program(rig.machine, 70);
  const std::array<std::string, 2> names{"one", "two"};
  for (const std::string& name : names) ASSERT_TRUE(rig.tenants.set(name, {}, /*create=*/true));
  std::array<Nanos, 2> used{};
  Nanos done{};
  for (int move = 0; move < 60; ++move) {
    ASSERT_TRUE(rig.tenants.attach(program.process, names[move % 2]));
    const Nanos work = 10ms * (move * 7 % 23);
    if (work > 0ns) program.kernel(work);
    done += work;
    for (const Time end = rig.machine.model.now() + 230ms + 37ms * (move % 11);
         rig.machine.model.now() < end;) {
      rig.run_for(5ms);
      for (size_t i = 0; i < names.size(); ++i) {
        const TenantUse use = use_of(rig, names[i]);
        EXPECT_GE(use.used[0], used[i]) << names[i] << " after " << move << " moves";
        used[i] = use.used[0];
      }
    }
  }
  rig.machine.model.close_client(program.client);
  rig.run_for(3s);
  Nanos all{};
  for (const std::string& name : names) {
    EXPECT_EQ(use_of(rig, name).presumed[0], 0ns);
    all += use_of(rig, name).used[0];
  }
  // What was presumed when it moved, nobody corrects.
  EXPECT_GE(all, done - 100ms);
  EXPECT_LE(all, done + 60 * 100ms);
}

// As a program that resets its device does.
TEST(SchedulerAccounts, AProgramThatMakesItsContextAgainKeepsItsAccount) {
  SchedulerRig rig;
  rig.start();
  sim::Program& first = rig.add_busy("first", {});  // so that samples are told
  rig.run_for(1s);
  rig.machine.model.close_client(first.client);
  ASSERT_TRUE(rig.tenants.set("again", {}, /*create=*/true));
  sim::Program program(rig.machine, 777);
  ASSERT_TRUE(rig.tenants.attach(program.process, "again"));
  for (int i = 0; i < 6; ++i) {
    program.kernel(100ms);
    rig.run_for(250ms);
    ASSERT_TRUE(rig.machine.model.destroy_context(program.client, program.context.context));
    rig.run_for(50ms);
    program.context = rig.machine.model.create_context(program.client, 0).value();
  }
  rig.machine.model.close_client(program.client);
  rig.run_for(3s);
  const TenantUse use = use_of(rig, "again");
  EXPECT_EQ(use.presumed[0], 0ns);
  EXPECT_NEAR(use.used[0] / 1ms, 600, 60) << "idle before each end, it used nothing then";
}

TEST(SchedulerAccounts, ATenantInARemovedOnesSlotBeginsWithNothing) {
  SchedulerRig rig;
  rig.start();
  sim::Program& program = rig.add_busy("old", {{"max", "10%"}});
  rig.run_for(3s);
  const uint32_t slot = rig.tenants.find("old").value();
  ASSERT_GT(rig.scheduler->state().tenant_use.at(slot).freezes, 0u);
  // Between two steps, so that no step sees the slot free.
  ASSERT_TRUE(rig.tenants.remove("old"));
  const std::vector<Setting> capped{{"max", "10%"}};
  const uint32_t next = rig.tenants.set("new", capped, true).value();
  ASSERT_TRUE(rig.tenants.attach(program.process, "new"));
  rig.step();
  const auto tenant_use = rig.scheduler->state().tenant_use;
  const TenantUse use = tenant_use.contains(next) ? tenant_use.at(next) : TenantUse{};
  EXPECT_EQ(use.freezes, 0u);
  EXPECT_LT(use.used[0], 100ms);
  EXPECT_LT(use.throttled, 200ms);
  EXPECT_FALSE(tenant_use.contains(slot) && slot != next);
  EXPECT_GT(rig.region->tenants[next].buckets[0].tokens(), 0ns) << "its bucket starts full";
  rig.run_for(100ms);
  EXPECT_EQ(rig.tenants.set("third", {}, true).value(), slot) << "the slot is used again";
}

}  // namespace
}  // namespace gpushare
