// SPDX-License-Identifier: Apache-2.0
// What programs are charged while they start, in the whole agent less its event loop and in virtual
// time. As on an H200, a start does a little on the GPU now and then and is resident in between,
// for up to 2.5 s (bench/results/trace.jsonl); as a program with the shim says, it has launched
// nothing meanwhile. Also programs that say so and work.
#include <gtest/gtest.h>

#include <random>

#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

// What each program says. It launches its work at the first instant at which its gate is open.
class Words : public test::NoShims {
 public:
  struct Program {
    sim::Program* does = nullptr;
    uint32_t tenant = 0;
    Nanos work{};  // that it wants to launch; 0: nothing
    bool has_launched = false, has_ended = false;
    bool is_liar = false;    // it says that it has launched nothing
    bool is_closed = false;  // its gate
    bool shows_work = true;  // false: of a shim that does not say what it has in flight
  };

  std::vector<ProcessView> views(uint32_t) const override {
    std::vector<ProcessView> views;
    for (const auto& [process, program] : programs)
      if (!program.has_ended)
        views.push_back(
            {.process = process, .tenant = program.tenant, .has_context = false, .has_shim = true});
    return views;
  }
  std::optional<SlotReading> look(const ProcessId& process) const override {
    const auto found = programs.find(process);
    if (found == programs.end()) return std::nullopt;
    const Program& program = found->second;
    const bool shows = program.has_launched && !program.is_liar;
    return SlotReading{.shows_work = program.shows_work,
                       .launches = shows ? 1U : 0U,
                       .waits = shows && !program.has_ended ? 1U : 0U,
                       .is_at_gate = program.is_closed && program.work > 0ns && !shows,
                       .iterations = std::nullopt};
  }
  void hold(const ProcessHold& hold) override {
    const auto found = programs.find(hold.process);
    if (found == programs.end()) return;
    found->second.is_closed = hold.is_gate_closed;
    go_on(found->second);
  }
  void go_on(Program& program) {
    if (program.is_closed || program.has_launched || program.work == 0ns) return;
    program.has_launched = true;
    const uint64_t kernel = program.does->kernel(program.work);
    program.does->machine.then[kernel] = [this, &program](const sim::Completion&) {
      program.has_ended = true;
      ended.push_back(program.does->process);
      program.does->machine.model.close_client(program.does->client);
    };
  }

  std::map<ProcessId, Program> programs;
  std::vector<ProcessId> ended;  // in their order
};

class Starts : public ::testing::Test {
 protected:
  void start(std::string_view config = "", bool have_shim = true) {
    if (have_shim) rig_.shims = &words_;
    rig_.start(true, config);
  }
  // A program that starts for so long, six times of which it does something on the GPU.
  Words::Program& add_start(const std::string& tenant, Nanos length,
                            std::vector<Setting> settings = {}) {
    sim::Program& program = rig_.add(tenant, std::move(settings));
    sim::Model& model = rig_.machine.model;
    for (int i = 0; i < 6; ++i)
      model.call_at(model.now() + length * i / 6,
                    [&model, &program] { model.touch(program.client, program.context.context); });
    Words::Program& said = words_.programs[program.process];
    said.does = &program;
    said.tenant = *rig_.tenants.find(tenant);
    return said;
  }
  void end(Words::Program& program) {
    rig_.machine.model.close_client(program.does->client);
    program.has_ended = true;
  }
  // As a program does itself.
  void choose_slice(sim::Program& program, Micros slice) {
    constexpr uint32_t kSetTimeslice = 0xA06C0103;
    program.set_slice(slice);
    rig_.observer.add({rig_.machine.model.now(), program.process,
                       ControlMade{program.client, program.context.group, kSetTimeslice, 0,
                                   static_cast<uint64_t>(slice.count())}});
  }
  double used_s(const std::string& tenant) {
    const auto& uses = rig_.scheduler->state().tenant_use;
    const auto use = uses.find(*rig_.tenants.find(tenant));
    return use == uses.end() ? 0 : std::chrono::duration<double>(use->second.used[0]).count();
  }

  Words words_;
  SchedulerRig rig_;
};

TEST_F(Starts, AShortJobAmongSixteenThatStartAtOnceIsStillShort) {
  start("[gpu.0]\npolicy = 'srtf'\n");
  constexpr std::size_t kShort = 7;
  std::minstd_rand random(11);
  std::vector<Words::Program*> jobs;
  for (std::size_t i = 0; i < 16; ++i) {
    const Nanos start = 500ms + 1ms * (random() % 2000);
    jobs.push_back(&add_start("job" + std::to_string(i), i == kShort ? 2500ms : start,
                              {{"length_us", i == kShort ? "300000" : "2000000"}}));
  }
  rig_.run_for(2500ms);
  const ProcessRecord record = rig_.record(*jobs[kShort]->does);
  EXPECT_EQ(record.job_place, 1U);
  EXPECT_LT(record.job_service_ns, 30e6);
  for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i]->work = i == kShort ? 300ms : 2s;
  for (Words::Program* job : jobs) words_.go_on(*job);
  rig_.run_for(5s);
  ASSERT_FALSE(words_.ended.empty());
  EXPECT_EQ(words_.ended.front(), jobs[kShort]->does->process);
}

// It is let in as soon as it has a context, and has nothing to launch for a second.
TEST_F(Starts, WhatAJobHadBeforeItsFirstLaunchIsNoPartOfItsLength) {
  start("[gpu.0]\npolicy = 'srtf'\n");
  Words::Program& job = add_start("job", 1s, {{"length_us", "2000000"}});
  job.shows_work = false;
  rig_.run_for(1s);
  EXPECT_GT(rig_.record(*job.does).job_service_ns, 0.15e9) << "use, until it is sampled";
  EXPECT_NEAR(static_cast<double>(rig_.record(*job.does).job_left_us), 2e6, 0.02e6);
  job.work = 2s;
  words_.go_on(job);
  rig_.run_for(1s);
  const auto left_us = static_cast<double>(rig_.record(*job.does).job_left_us);
  EXPECT_GE(left_us, 0.89e6) << "the launch is seen in the next step";
  EXPECT_LE(left_us, 1.45e6) << "what was charged too much of its start pays for some of its work";
}

// Of four programs one or the other is always starting, and holds the GPU while nobody works.
TEST_F(Starts, AStreamOfThemHasNoShare) {
  start();
  sim::Program& worker = rig_.add("worker", {});
  sim::PeriodicKernel works(worker, 5ms, 15ms);
  std::vector<Words::Program*> starting(4);
  for (Nanos time{}; time < 4s; time += 100ms) {
    Words::Program*& next = starting[static_cast<std::size_t>(time / 100ms) % starting.size()];
    if (next != nullptr) end(*next);
    next = &add_start("starters", 400ms);
    rig_.run_for(100ms);
  }
  EXPECT_LT(used_s("starters"), 0.2);
  EXPECT_LT(rig_.record(*starting[0]->does).share_permille, 30U);
}

TEST_F(Starts, AMedianOneIsNotThrottledByItsCap) {
  start();
  Words::Program& program = add_start("capped", 103ms, {{"max", "10%"}});
  rig_.run_for(103ms);
  program.work = 9ms;
  words_.go_on(program);
  rig_.run_for(30ms);
  EXPECT_TRUE(program.has_ended);
  const auto& uses = rig_.scheduler->state().tenant_use;
  const auto use = uses.find(*rig_.tenants.find("capped"));
  ASSERT_NE(use, uses.end());
  EXPECT_EQ(use->second.throttled, 0ns);
  EXPECT_LT(use->second.used[0], 15ms);
}

class StartsBesideATurn : public Starts, public ::testing::WithParamInterface<bool> {};

// Each starts for 300 ms, does a little and ends, and another one comes, as in a test suite: nobody
// is stopped for what does next to nothing on the GPU.
TEST_P(StartsBesideATurn, CostItLittle) {
  start("[gpu.0]\npolicy = 'turns'\n", /*have_shim=*/GetParam());
  rig_.add_busy("busy", {});
  rig_.run_for(1s);
  sim::Model& model = rig_.machine.model;
  std::function<void(int)> begin = [&](int left) {
    if (left == 0) return;
    Words::Program& program = add_start("short", 300ms);
    for (const Nanos at : {100ms, 150ms})  // module loading, say
      model.call_at(model.now() + at, [&] { (void)program.does->kernel(1200us); });
    model.call_at(model.now() + 300ms, [&] {
      program.work = 4ms;
      if (GetParam()) return words_.go_on(program);
      (void)program.does->kernel(4ms);
    });
    model.call_at(model.now() + 400ms, [&, left] {
      if (!program.has_ended) end(program);
      begin(left - 1);
    });
  };
  begin(12);
  begin(12);
  EXPECT_GT(rig_.measure(4s)[0], 0.93);
}

INSTANTIATE_TEST_SUITE_P(All, StartsBesideATurn, ::testing::Bool(), [](const auto& with_shim) {
  return with_shim.param ? "with_the_shim" : "without";
});

struct Crowd {
  const char *name, *policy;
  Nanos quiet, work, flees;
  int lanes = 16;
  bool is_in_step = false;  // all begin at the same instants
  Micros slice{};           // of their own; 0: the driver's
};
class StartsInACrowd : public Starts, public ::testing::WithParamInterface<Crowd> {};

// Of one user: each does a little after a while and ends, or flees, as it is frozen, and the next
// one comes. Together they want the GPU more than twice.
TEST_P(StartsInACrowd, PassNobody) {
  const Crowd& crowd = GetParam();
  start("[gpu.0]\npolicy = '" + std::string(crowd.policy) + "'\n", /*have_shim=*/false);
  rig_.add_busy("busy", {{"length_us", "1000000"}});
  rig_.run_for(1s);
  sim::Model& model = rig_.machine.model;
  std::function<void()> begin = [&] {
    sim::Program& program = rig_.add("crowd", {});
    if (crowd.slice > 0us) choose_slice(program, crowd.slice);
    model.call_at(model.now() + crowd.quiet, [&] {
      for (Nanos left = crowd.work; left > 0ns; left -= 1ms) (void)program.kernel(1ms);
    });
    model.call_at(model.now() + crowd.flees, [&] {
      model.close_client(program.client);
      begin();
    });
  };
  for (int i = 0; i < crowd.lanes; ++i)
    model.call_at(model.now() + (crowd.is_in_step ? 0ns : crowd.flees * i / crowd.lanes), begin);
  rig_.run_for(8s);  // what was saved at first is used up
  EXPECT_GT(rig_.measure(4s)[0], 1 - 2 * gpushare::Starts::kPart);
}

// Those that are late do nothing for longer than a start is watched, and then more than a start
// may.
INSTANTIATE_TEST_SUITE_P(
    Orders, StartsInACrowd,
    ::testing::Values(Crowd{"first_come", "fifo", 20ms, 8ms, 80ms},
                      Crowd{"shortest", "srtf", 20ms, 8ms, 80ms},
                      Crowd{"late", "fifo", 100ms, 40ms, 200ms},
                      Crowd{"late_in_step", "fifo", 60ms, 40ms, 200ms, 4, true},
                      Crowd{"with_a_long_slice", "fifo", 0ms, 400ms, 400ms, 1, true, 100ms}),
    [](const auto& crowd) { return crowd.param.name; });

// Who was frozen when no start could pass any more goes on when they can again.
TEST_F(Starts, AreLetGoWhenTheyMayPassAgain) {
  start("[gpu.0]\npolicy = 'fifo'\n", /*have_shim=*/false);
  rig_.add_busy("first", {});
  rig_.run_for(1s);
  std::vector<sim::Program*> crowd;
  for (int i = 0; i < 250; ++i) {
    crowd.push_back(&rig_.add("crowd", {}));
    (void)crowd.back()->kernel(9ms);
    rig_.run_for(20ms);
    rig_.machine.model.close_client(crowd.back()->client);
  }
  Words::Program& late = add_start("late", 300ms);
  rig_.run_for(100ms);
  EXPECT_EQ(rig_.record(*late.does).state, ProcessState::kFrozenTurn);
  rig_.run_for(5s);
  EXPECT_NE(rig_.record(*late.does).state, ProcessState::kFrozenTurn);
  EXPECT_EQ(rig_.record(*late.does).turn, TurnState::kHeld);
}

// What it has in a long slice of its own is not taken for what one has that is alone.
TEST_F(Starts, ALiarWithALongSliceIsHeldToo) {
  start("[gpu.0]\npolicy = 'fifo'\n");
  rig_.add_busy("first", {});
  rig_.run_for(1s);
  sim::Program& liar = rig_.add_busy("liar", {});
  choose_slice(liar, 100ms);
  Words::Program& said = words_.programs[liar.process];
  said.does = &liar;
  said.tenant = *rig_.tenants.find("liar");
  said.is_liar = true;
  EXPECT_GT(rig_.measure(2s)[0], 0.9);
}

// The log tells what they use of their server, so nothing says when their starts are over.
TEST_F(Starts, ClientsOfTheirUsersOwnMpsHaveNone) {
  start("[gpu.0]\npolicy = 'fifo'\n", /*have_shim=*/false);
  rig_.add_busy("first", {});
  rig_.run_for(1s);
  std::vector<std::unique_ptr<sim::Program>> clients;
  for (const pid_t pid : {900, 901}) {
    clients.push_back(std::make_unique<sim::Program>(rig_.machine, pid, 0, /*mps_server=*/7));
    (void)rig_.tenants.set("clients", {}, /*create=*/true).value();
    (void)rig_.tenants.attach(clients.back()->process, "clients").value();
    clients.back()->endless();
  }
  rig_.run_for(60ms);
  for (const auto& client : clients)
    EXPECT_FALSE(rig_.scheduler->turns().is_starting(client->process, 0));
}

// A night of tests with nobody else there takes nothing from those who start in the morning.
TEST_F(Starts, BesideNobodyAreNotCounted) {
  start("[gpu.0]\npolicy = 'turns'\n", /*have_shim=*/false);
  sim::Model& model = rig_.machine.model;
  const auto run_short = [&](Nanos work) {
    sim::Program& program = rig_.add("short", {});
    (void)program.kernel(work);
    rig_.run_for(work + 11ms);
    model.close_client(program.client);
  };
  for (int i = 0; i < 1000; ++i) run_short(9ms);
  rig_.add_busy("busy", {});
  rig_.run_for(1s);
  Words::Program& starts = add_start("starts", 300ms);
  rig_.run_for(300ms);
  EXPECT_NE(rig_.record(*starts.does).state, ProcessState::kFrozenTurn);
  EXPECT_EQ(rig_.tenant("starts").turns, 0U);
}

// As many as there are for a moment, each in its own slice: who has the turn only waits for them.
TEST_F(Starts, DoNotMakeWhoHasTheTurnLookAsIfItRested) {
  start("[gpu.0]\npolicy = 'fifo'\n", /*have_shim=*/false);
  rig_.add_busy("first", {});
  rig_.run_for(100ms);
  rig_.add_busy("second", {});
  rig_.run_for(1s);
  for (int i = 0; i < 6; ++i) (void)rig_.add("starts", {}).kernel(9ms);
  rig_.run_for(200ms);
  EXPECT_EQ(rig_.tenant("second").turns, 0U);
}

// One that makes a context on each GPU is not stopped in the midst of it.
TEST(StartsOnSeveralGpus, AreMeasuredOnEach) {
  constexpr uint32_t kGpus = 4;
  SchedulerRig rig(kGpus);
  std::string config;
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
    config += "[gpu." + std::to_string(gpu) + "]\npolicy = 'turns'\n";
  rig.start(true, config);
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) rig.add_busy("busy" + std::to_string(gpu), {}, gpu);
  rig.run_for(1s);
  sim::Model& model = rig.machine.model;
  sim::Program& program = rig.add("starts", {});
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    const uint32_t context = gpu == 0 ? program.context.context
                                      : model.create_context(program.client, gpu).value().context;
    model.submit(program.client, {rig.machine.next_sequence++, context, 0, sim::WorkKind::kKernel,
                                  sim::Direction::kNone, static_cast<uint64_t>(Nanos(4ms).count()),
                                  sim::kAllSms, 0, 0});
    rig.run_for(20ms);
    EXPECT_NE(rig.record(program).state, ProcessState::kFrozenTurn) << gpu;
  }
  EXPECT_EQ(rig.tenant("starts").turns, 0U);
}

// As one in a notebook, say, which has made its context and waits for hours.
TEST_F(Starts, OneThatDoesNothingElseKeepsNobodyAwake) {
  start("[gpu.0]\npolicy = 'turns'\n", /*have_shim=*/false);
  rig_.add_busy("busy", {});
  add_start("idle", 300ms);
  rig_.run_for(2s);
  const uint64_t before = rig_.steps;
  rig_.run_for(1s);
  EXPECT_LE(rig_.steps - before, 45U) << "one at each end of a turn of 25 ms";
}

TEST_F(Starts, WithoutTheShimTheyAreChargedForWhatIsSampled) {
  start("", /*have_shim=*/false);
  add_start("plain", 600ms);
  rig_.run_for(1200ms);
  EXPECT_LT(used_s("plain"), 0.05);
}

// --- programs that would have more than their cap by saying that they only start

// Programs of a tenant with a cap of 10 %, each of which says that it has launched nothing, works
// for so long, and ends. Returns what they got done of `time`.
double run_liars(Words& words, SchedulerRig& rig, Nanos work, Nanos time) {
  const std::vector<Setting> capped{{"max", "10%"}};
  EXPECT_TRUE(rig.tenants.set("capped", capped, /*create=*/true));
  static pid_t pid = 5000;
  Nanos done{};
  for (const Time end = rig.machine.model.now() + time; rig.machine.model.now() < end;) {
    sim::Program program(rig.machine, pid++);
    EXPECT_TRUE(rig.tenants.attach(program.process, "capped"));
    words.programs[program.process] = {.does = &program, .is_liar = true};
    bool has_ended = false;
    const uint64_t kernel = program.kernel(work);
    rig.machine.then[kernel] = [&](const sim::Completion&) { has_ended = true; };
    while (!has_ended && rig.machine.model.now() < end) rig.run_for(1ms);
    done += has_ended ? work : program.executed(kernel);
    rig.machine.then.erase(kernel);
    words.programs.erase(program.process);
    rig.machine.model.close_client(program.client);
  }
  return std::chrono::duration<double>(done) / time;
}

TEST_F(Starts, ALiarHasNoMoreThanItsCap) {
  for (const Nanos work : {Nanos(50ms), Nanos(5ms), Nanos(600ms), Nanos(10s), Nanos(100s)}) {
    Words words;
    SchedulerRig rig;
    rig.shims = &words;
    rig.start();
    // What was done in the last 0.6 s may not have been sampled.
    EXPECT_LE(run_liars(words, rig, work, 60s), 0.108) << work / 1ms << " ms";
  }
}

TEST_F(Starts, ALiarBesideOthersHasNoMoreThanItsWeight) {
  start();
  rig_.add_busy("heavy", {{"weight", "300"}});
  sim::Program& liar = rig_.add_busy("light", {{"weight", "100"}});
  words_.programs[liar.process] = {.does = &liar, .is_liar = true};
  const auto shares = rig_.measure(3s);
  EXPECT_NEAR(shares[1] / (shares[0] + shares[1]), 0.25, 0.03);
  EXPECT_NEAR(used_s("light"), 3 * shares[1], 0.15);
}

TEST_F(Starts, WhatALiarHadAloneIsItsOwnWhenTheDriverHasSampledIt) {
  start();
  sim::Program& liar = rig_.add_busy("liar", {});
  words_.programs[liar.process] = {.does = &liar, .is_liar = true};
  rig_.run_for(200ms);
  EXPECT_LT(used_s("liar"), 0.1);
  rig_.run_for(1800ms);
  // What the driver was not asked for is not known: it begins when the first one is alone. And a
  // sample may be late by 0.6 s.
  EXPECT_NEAR(used_s("liar"), 1.4, 0.3);
  rig_.run_for(4s);
  EXPECT_NEAR(used_s("liar"), 5.4, 0.3);
}

// As one whose kernel runs on and on, and is not waited for: its word is wrong, and it does not
// lie.
TEST_F(Starts, WhatItsCapHasNotBelievedIsNotChargedToItTwice) {
  start();
  sim::Program& program = rig_.add_busy("capped", {{"max", "30%"}});
  words_.programs[program.process] = {.does = &program, .is_liar = true};
  EXPECT_NEAR(rig_.measure(10s)[0], 0.3, 0.02);
}

}  // namespace
}  // namespace gpushare
