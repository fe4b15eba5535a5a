// SPDX-License-Identifier: Apache-2.0
// Work that goes on after its program has ended, because a child that never calls the driver holds
// the descriptors: it is the program's still, for its cap, its weight, freezes, turns and charges.
#include <gtest/gtest.h>

#include "sched/tenants/takeover.h"
#include "shmctl/plane/owner_list.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::kPoint;
using test::SchedulerRig;

constexpr ProcessId kChild{900, 1900};

class Outlived : public ::testing::Test {
 protected:
  // The program's child has its descriptor, and it ends.
  void end(const sim::Program& program) {
    rig_.machine.model.inherit(program.client, kChild);
    rig_.processes.dead[program.process.pid] = true;
    rig_.machine.model.end_process(program.process, 0);
  }
  void end_child(const sim::Program& program) { rig_.machine.model.close_client(program.client); }
  double share(const sim::Program& program, std::size_t index, Nanos time) {
    const Nanos before = program.executed(rig_.work[index]);
    rig_.run_for(time);
    return std::chrono::duration<double>(program.executed(rig_.work[index]) - before) / time;
  }
  Nanos charged(const std::string& tenant) { return Nanos(rig_.tenant(tenant).gpu[0].gpu_time_ns); }
  void restart() {
    rig_.kill();
    rig_.start();
  }

  SchedulerRig rig_;
};

TEST_F(Outlived, IsCappedAndChargedAsBefore) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  const sim::Program& program = *rig_.programs[0];
  end(program);
  rig_.run_for(1s);
  const Nanos before = charged("capped");
  EXPECT_NEAR(share(program, 0, 20s), 0.10, kPoint);
  EXPECT_NEAR((charged("capped") - before) / 1ms, 2000, 200);
  const ProcessRecord record = rig_.record(program);
  EXPECT_EQ(record.pid, program.process.pid);
  EXPECT_STREQ(record.note, "has ended; its work goes on until 900 ends");
  EXPECT_EQ(rig_.tenant("capped").process_count, 1u);
}

TEST_F(Outlived, FromTheFirstMomentOnIsCapped) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  end(*rig_.programs[0]);
  // Also before it is known that something remains.
  EXPECT_LE(share(*rig_.programs[0], 0, 1s), 0.11);
}

TEST_F(Outlived, IsFrozenWithItsTenant) {
  rig_.run_busy({{"a", {}}}, 2s);
  end(*rig_.programs[0]);
  rig_.run_for(1s);
  ASSERT_TRUE(rig_.tenants.set_frozen("a", true));
  rig_.run_for(100ms);
  EXPECT_EQ(share(*rig_.programs[0], 0, 5s), 0);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  ASSERT_TRUE(rig_.tenants.set_frozen("a", false));
  rig_.run_for(100ms);
  EXPECT_NEAR(share(*rig_.programs[0], 0, 5s), 1, kPoint);
}

TEST_F(Outlived, WhatWasFrozenStaysSo) {
  rig_.run_busy({{"a", {}}}, 2s);
  ASSERT_TRUE(rig_.tenants.set_frozen("a", true));
  rig_.run_for(100ms);
  end(*rig_.programs[0]);
  EXPECT_EQ(share(*rig_.programs[0], 0, 5s), 0);
  end_child(*rig_.programs[0]);
  rig_.run_for(1100ms);
  EXPECT_EQ(rig_.records(), 0u);
  EXPECT_EQ(rig_.ledger_entries(), 0u);
}

// Also with other weights than when the program lived: the child has the descriptor.
TEST_F(Outlived, HasItsShareBesideOthers) {
  rig_.run_busy({{"a", {{"weight", "300"}}}, {"b", {{"weight", "100"}}}}, 3s);
  end(*rig_.programs[0]);
  rig_.run_for(15s);
  std::vector<double> shares = rig_.measure(10s);
  EXPECT_NEAR(shares[0], 0.75 * (shares[0] + shares[1]), 2 * kPoint);
  ASSERT_TRUE(rig_.tenants.set("a", std::vector<Setting>{{"weight", "50"}}, false));
  rig_.run_for(3s);
  shares = rig_.measure(10s);
  EXPECT_NEAR(shares[0], (shares[0] + shares[1]) / 3, 2 * kPoint);
}

TEST_F(Outlived, IsForgottenWithItsChild) {
  rig_.run_busy({{"a", {}}, {"b", {}}}, 3s);
  end(*rig_.programs[0]);
  rig_.run_for(5s);
  EXPECT_EQ(rig_.records(), 2u);
  end_child(*rig_.programs[0]);
  rig_.run_for(1100ms);
  EXPECT_EQ(rig_.records(), 1u);
  rig_.run_for(3s);
  EXPECT_NEAR(rig_.measure(2s)[1], 1, kPoint);
}

TEST_F(Outlived, WithoutWorkTakesNothingFromOthers) {
  rig_.start();
  sim::Program& idle = rig_.add("a", {});
  rig_.add_busy("b", {});
  rig_.run_for(2s);
  end(idle);
  rig_.run_for(2s);
  EXPECT_NEAR(rig_.measure(10s)[1], 1, kPoint);
}

// The agent is told of the end by the module with the last descriptor alone: /proc says it before.
TEST_F(Outlived, ThatNobodyTellsOfIsCapped) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  rig_.processes.dead[rig_.programs[0]->process.pid] = true;
  rig_.run_for(3s);
  EXPECT_NEAR(share(*rig_.programs[0], 0, 20s), 0.10, kPoint);
}

// How the agents before it have ended.
enum class Ends : uint8_t { kKilled, kStopped, kKilledAtOnce };

class OutlivedByAgents : public Outlived, public ::testing::WithParamInterface<Ends> {
 protected:
  void next_agent() {
    if (GetParam() == Ends::kStopped) {
      rig_.scheduler->stop();
      clear_records(*rig_.region);
    }
    restart();
    for (int i = 0; GetParam() == Ends::kKilledAtOnce && i < 3; ++i) {
      for (int steps = 0; steps < i; ++steps) rig_.step();
      restart();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, OutlivedByAgents,
                         testing::Values(Ends::kKilled, Ends::kStopped, Ends::kKilledAtOnce),
                         [](const auto& of) {
                           return of.param == Ends::kKilled    ? "Killed"
                                  : of.param == Ends::kStopped ? "Stopped"
                                                               : "KilledAtOnce";
                         });

TEST_P(OutlivedByAgents, IsItsTenants) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  end(*rig_.programs[0]);
  rig_.run_for(2s);
  for (int agents = 0; agents < 3; ++agents) {
    next_agent();
    rig_.run_for(3s);
    EXPECT_EQ(rig_.record(*rig_.programs[0]).tenant, rig_.tenants.find("capped"));
    const Nanos before = charged("capped");
    EXPECT_NEAR(share(*rig_.programs[0], 0, 10s), 0.10, kPoint);
    EXPECT_NEAR((charged("capped") - before) / 1ms, 1000, 100);
  }
  end_child(*rig_.programs[0]);
  rig_.run_for(1100ms);
  EXPECT_EQ(rig_.records(), 0u);
}

TEST_P(OutlivedByAgents, IsItsTenantsWhereTheProgramEndedWhileNoAgentWas) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  if (GetParam() == Ends::kStopped) {
    rig_.scheduler->stop();
    clear_records(*rig_.region);
  }
  rig_.kill();
  end(*rig_.programs[0]);
  rig_.run_for(1min);
  rig_.start();
  if (GetParam() == Ends::kKilledAtOnce) next_agent();
  rig_.run_for(3s);
  EXPECT_NEAR(share(*rig_.programs[0], 0, 10s), 0.10, kPoint);
}

// Its twentieth client is its own as well.
TEST_P(OutlivedByAgents, OfManyClientsIsItsTenants) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 1s);
  const sim::Program& program = *rig_.programs[0];
  sim::Model& model = rig_.machine.model;
  std::vector<uint32_t> clients;
  uint32_t last = 0;
  for (int i = 0; i < 20; ++i) {
    last = model.open_client(program.process, {.ns_pid = program.process.pid, .command = "many"});
    const auto context = model.create_context(last, 0, 0).value();
    sim::Work work{};
    work.sequence = 1;
    work.context = context.context;
    work.kind = sim::WorkKind::kEndless;
    work.sm_ppm = sim::kAllSms;
    model.submit(last, work);
    model.inherit(last, kChild);
    clients.push_back(last);
  }
  rig_.run_for(2s);
  end(program);
  rig_.run_for(2s);
  next_agent();
  rig_.run_for(3s);
  const auto all = [&] {
    Nanos sum = program.executed(rig_.work[0]);
    for (const uint32_t client : clients) sum += Nanos(model.progress(client, 1).executed_ns);
    return sum;
  };
  const Nanos before = all();
  rig_.run_for(10s);
  EXPECT_NEAR(std::chrono::duration<double>(all() - before) / 10s, 0.10, 2 * kPoint);
}

// What was noted of it goes when the driver has nothing of it any more, also if that came to be
// while no agent was there.
TEST_P(OutlivedByAgents, IsForgottenWithItsChildWhileNoAgentWas) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  end(*rig_.programs[0]);
  rig_.run_for(1s);
  EXPECT_EQ(OwnerList(*rig_.region, 1).processes().size(), 1u);
  if (GetParam() == Ends::kStopped) rig_.scheduler->stop();
  rig_.kill();
  EXPECT_EQ(OwnerList(*rig_.region, 1).processes().size(), 1u);
  end_child(*rig_.programs[0]);
  rig_.start();
  rig_.run_for(2100ms);
  EXPECT_TRUE(OwnerList(*rig_.region, 1).processes().empty());
}

// The driver names clients by a number that begins anew after a million. While no agent was there
// another program got the name of one that is gone: the switch log tells who works in it.
TEST_F(Outlived, AClientWhoseNameWasUsedAgainIsItsMakers) {
  rig_.add_busy("maker", {});
  const sim::Program& maker = *rig_.programs[0];
  OwnerList list(*rig_.region, 1);
  OwnerList::Owner gone;
  gone.process = {77, 1077};
  gone.tenant = "capped";
  gone.clients = {maker.client};
  ASSERT_TRUE(list.put(gone));
  ASSERT_TRUE(rig_.tenants.set("capped", std::vector<Setting>{{"max", "10%"}}, /*create=*/true));
  rig_.processes.dead[77] = true;
  rig_.start();
  rig_.run_for(3s);
  EXPECT_EQ(rig_.record(maker).tenant, rig_.tenants.find("maker"));
  EXPECT_EQ(rig_.records(), 1u);
  EXPECT_NEAR(share(maker, 0, 10s), 1, kPoint);
}

// An exec closes its own descriptors, and the child has copies. The next program uses the driver.
TEST_F(Outlived, FromBeforeAnExecIsCapped) {
  rig_.run_busy({{"capped", {{"max", "10%"}}}}, 5s);
  const sim::Program& program = *rig_.programs[0];
  rig_.machine.model.inherit(program.client, kChild);
  rig_.machine.model.end_process(program.process);
  rig_.observer.add({rig_.machine.model.now(), program.process, ProcessOpened{.command = "next"}});
  rig_.run_for(3s);
  EXPECT_NEAR(share(program, 0, 20s), 0.10, kPoint);
}

// Its command line is read again for ten seconds when it is empty, and then it has none.
TEST_F(Outlived, OfAnEmptyCommandLineStaysInItsTenant) {
  ASSERT_TRUE(rig_.tenants.start(
      parse_config("[tenant.capped]\nmax = \"10%\"\nmatch = [{cgroup=\"/box\"}]\n", "test",
                   rig_.policies)
          .value()));
  rig_.start();
  sim::Program program(rig_.machine, 70);
  rig_.processes.add(program.process, "").cgroup = "/box";
  const uint64_t work = program.endless();
  rig_.run_for(2s);
  ASSERT_EQ(rig_.record(program).tenant, rig_.tenants.find("capped"));
  end(program);
  rig_.run_for(5s);
  EXPECT_EQ(rig_.record(program).tenant, rig_.tenants.find("capped"));
  const Nanos before = program.executed(work);
  rig_.run_for(10s);
  EXPECT_NEAR(std::chrono::duration<double>(program.executed(work) - before) / 10s, 0.1, kPoint);
  restart();
  rig_.run_for(3s);
  EXPECT_EQ(rig_.record(program).tenant, rig_.tenants.find("capped")) << "for the next agent";
}

// Of many that end one after the other, too: no moment of their ends is free.
TEST_F(Outlived, OneAfterTheOtherIsCapped) {
  rig_.start();
  std::vector<sim::Program*> programs;
  Nanos done{};
  for (int i = 0; i < 40; ++i) {
    programs.push_back(&rig_.add_busy("capped", {{"max", "10%"}}));
    rig_.run_for(50ms);
    end(*programs.back());
    rig_.run_for(450ms);
  }
  for (std::size_t i = 0; i < programs.size(); ++i) done += programs[i]->executed(rig_.work[i]);
  EXPECT_LE(std::chrono::duration<double>(done) / 20s, 0.125);
}

// One after the other while another job has the turn: none of their ends is a turn.
TEST_F(Outlived, InACrowdPassesNoQueue) {
  rig_.start(true, "[gpu.0]\npolicy = \"fifo\"\n");
  sim::Program& first = rig_.add_busy("a", {});
  rig_.run_for(2s);
  const Nanos before = first.executed(rig_.work[0]);
  for (int i = 0; i < 40; ++i) {
    sim::Program& one = rig_.add_busy("crowd", {});
    rig_.run_for(20ms);
    end(one);
    rig_.run_for(480ms);
  }
  EXPECT_GE(std::chrono::duration<double>(first.executed(rig_.work[0]) - before) / 20s, 0.9);
}

class OutlivedInTurns : public Outlived {
 protected:
  void start(const char* policy) {
    rig_.start(true, std::string("[gpu.0]\npolicy = \"") + policy + "\"\n");
  }
};

TEST_F(OutlivedInTurns, WaitsForItsTurnAsBefore) {
  start("fifo");
  sim::Program& first = rig_.add_busy("a", {});
  rig_.run_for(1s);
  sim::Program& second = rig_.add_busy("b", {});
  rig_.run_for(2s);
  end(second);
  rig_.run_for(1s);
  EXPECT_LE(share(second, 1, 5s), kPoint);
  rig_.machine.model.close_client(first.client);
  rig_.run_for(1s);
  EXPECT_NEAR(share(second, 1, 5s), 1, kPoint);
}

TEST_F(OutlivedInTurns, KeepsItsTurnAndTheNextIsLetInAfterIt) {
  start("fifo");
  sim::Program& first = rig_.add_busy("a", {});
  rig_.run_for(1s);
  sim::Program& second = rig_.add_busy("b", {});
  rig_.run_for(2s);
  end(first);
  rig_.run_for(3s);
  const std::vector<double> shares = rig_.measure(5s);
  EXPECT_GE(shares[0], 0.95) << "it was there first";
  EXPECT_LE(shares[1], kPoint);
  end_child(first);
  rig_.run_for(2s);
  EXPECT_NEAR(share(second, 1, 5s), 1, kPoint);
}

}  // namespace
}  // namespace gpushare
