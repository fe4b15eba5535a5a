// SPDX-License-Identifier: Apache-2.0
// Policies that order jobs, and what is learnt of jobs, in the whole agent less its event loop and
// in virtual time: programs without the shim, which are stopped by freezes. How jobs are ordered is
// tested in tests/sched/orders.
#include <gtest/gtest.h>

#include <map>

#include "sched/step/publisher.h"
#include "tests/sched/account/lossy_gpu.h"
#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class FifoInTheAgent : public ::testing::Test {
 protected:
  FifoInTheAgent() { rig_.start(true, "[gpu.0]\npolicy = 'fifo'\n"); }
  // One after the other, so that it is known which came first.
  void add_busy(const std::string& tenant, std::vector<Setting> settings = {}) {
    rig_.add_busy(tenant, std::move(settings));
    rig_.run_for(200ms);
  }

  test::SchedulerRig rig_;
};

TEST_F(FifoInTheAgent, TheFirstJobRunsAloneAndTheNextOneWhenItHasEnded) {
  for (const char* tenant : {"a", "b", "c"}) add_busy(tenant);
  rig_.run_for(1s);
  for (const std::size_t waiting : {1, 2}) {
    const ProcessRecord record = rig_.record(*rig_.programs[waiting]);
    EXPECT_EQ(record.state, ProcessState::kFrozenTurn);
    EXPECT_EQ(record.job_place, waiting + 1);
    EXPECT_STREQ(record.note, "turn of pid-100");
  }
  auto shares = rig_.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_EQ(shares[1] + shares[2], 0);
  rig_.machine.model.close_client(rig_.programs[0]->client);
  rig_.work[0] = 0;
  rig_.run_for(200ms);
  shares = rig_.measure(1s);
  EXPECT_GT(shares[1], 0.99);
  EXPECT_STREQ(rig_.record(*rig_.programs[1]).note, "");
}

TEST_F(FifoInTheAgent, AHigherClassGoesFirst) {
  add_busy("a");
  add_busy("b", {{"priority", "high"}});
  rig_.run_for(1s);
  const auto shares = rig_.measure(1s);
  EXPECT_EQ(shares[0], 0);
  EXPECT_GT(shares[1], 0.99);
}

TEST_F(FifoInTheAgent, TheUsersFreezeHoldsAndTheNextOneRunsMeanwhile) {
  add_busy("a");
  add_busy("b");
  ASSERT_TRUE(rig_.tenants.set_frozen("a", true));
  rig_.run_for(500ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  auto shares = rig_.measure(1s);
  EXPECT_EQ(shares[0], 0);
  EXPECT_GT(shares[1], 0.99);
  ASSERT_TRUE(rig_.tenants.set_frozen("a", false));
  rig_.run_for(500ms);
  EXPECT_GT(rig_.measure(1s)[0], 0.99) << "it is still the one that came first";
}

// Without what it has had, a job that is nearly done would seem to need all of its length again.
class JobsOfAFormerAgent : public ::testing::TestWithParam<bool> {};

TEST_P(JobsOfAFormerAgent, KeepWhatTheyHaveHad) {
  constexpr const char* kSrtf = "[gpu.0]\npolicy = 'srtf'\n";
  test::SchedulerRig rig;
  rig.start(true, kSrtf);
  rig.add_busy("a", {{"length_us", "12000000"}});
  rig.run_for(8s);
  rig.add_busy("b", {{"length_us", "5000000"}});
  rig.run_for(500ms);
  EXPECT_GT(rig.measure(200ms)[0], 0.99);
  if (GetParam()) rig.scheduler->stop();
  rig.kill();
  rig.start(true, kSrtf);
  rig.run_for(1s);
  EXPECT_GT(rig.measure(200ms)[0], 0.99);
  EXPECT_LT(rig.record(*rig.programs[0]).job_left_us, 3'000'000u);
}

INSTANTIATE_TEST_SUITE_P(All, JobsOfAFormerAgent, testing::Bool(),
                         [](const auto& of) { return of.param ? "Stopped" : "Killed"; });

// Programs with the shim whose iterations are announced. Each comes to its boundary 3 ms after it
// is told to stop, so that a turn does not end in the step that ends it.
class Iterating : public test::NoShims {
 public:
  explicit Iterating(const Clock& clock) : clock_(clock) {}

  std::vector<ProcessView> views(uint32_t) const override {
    std::vector<ProcessView> views;
    for (const ProcessId& process : processes)
      views.push_back(
          {.process = process, .iterations = IterationsView{.source = ShimSource::kAnnounced}});
    return views;
  }
  std::optional<SlotReading> look(const ProcessId& process) const override {
    const auto told = told_.find(process);
    const bool stands = told != told_.end() && clock_.now() >= told->second + 3ms;
    return SlotReading{.launches = static_cast<uint64_t>(clock_.now().time_since_epoch() / 1ms),
                       .is_read = true,
                       .at_boundary = stands ? std::optional(told->second + 3ms) : std::nullopt,
                       .begun = 1,
                       .iterations = std::nullopt};
  }
  void hold(const ProcessHold& hold) override {
    if (hold.run_until == 0)
      told_.erase(hold.process);
    else
      told_.try_emplace(hold.process, clock_.now());
  }

  Time now() const { return clock_.now(); }
  std::vector<ProcessId> processes;

 private:
  const Clock& clock_;
  std::map<ProcessId, Time> told_;
};

// Whenever an iteration of 10 ms has ended it says that there will be one more.
class SaysOneMore : public Iterating {
 public:
  using Iterating::Iterating;
  std::vector<ProcessView> views(uint32_t gpu) const override {
    std::vector<ProcessView> views = Iterating::views(gpu);
    if (views.empty()) return views;
    IterationsView& said = *views[0].iterations;
    said.ended = static_cast<uint64_t>((now() - first_) / 10ms);
    said.begun = said.ended + 1;
    said.expected = said.begun;
    said.period_ns = 10'000'000;
    return views;
  }
  void begin() { first_ = now(); }

 private:
  Time first_{};
};

TEST(TurnsInTheAgent, WhoSaysAgainAndAgainThatItIsNearlyDoneLosesItsPlace) {
  test::SchedulerRig rig;
  SaysOneMore shims(rig.clock);
  rig.shims = &shims;
  rig.start(true, "[gpu.0]\npolicy = 'srtf'\ngrace_ms = 20\n");
  shims.processes.push_back(rig.add_busy("a", {}).process);
  shims.begin();
  rig.run_for(500ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).job_left_by,
            static_cast<uint32_t>(LeftSource::kAnnounced));
  shims.processes.push_back(rig.add_busy("b", {{"length_us", "2000000"}}).process);
  rig.run_for(500ms);
  EXPECT_GT(rig.measure(200ms)[0], 0.9);
  rig.run_for(3s);
  EXPECT_GT(rig.measure(200ms)[1], 0.9);
  EXPECT_EQ(rig.record(*rig.programs[0]).job_left_us, kUnknown64);
}

// What is published in the step in which a turn ends must not stand until the next one ends.
TEST(TurnsInTheAgent, RecordsShowWhoHasTheTurn) {
  test::SchedulerRig rig;
  Iterating shims(rig.clock);
  rig.shims = &shims;
  rig.start(true, "[gpu.0]\npolicy = 'turns'\nturn_ms = 70\ngrace_ms = 10000\n");
  for (const char* tenant : {"a", "b"}) shims.processes.push_back(rig.add_busy(tenant, {}).process);
  const auto pass = [&rig](Nanos time) {
    for (; time > Nanos{}; time -= 1ms) {
      rig.run_for(1ms);
      if (rig.scheduler->look_at_turns()) rig.step();  // as the agent does between two steps
    }
  };
  pass(1s);
  int looks = 0, seen[2] = {}, held = 0, waiting = 0;
  for (; looks < 400; ++looks) {
    pass(5ms);
    for (const int i : {0, 1}) {
      const ProcessRecord record = rig.record(*rig.programs[i]);
      seen[i] += record.turn == TurnState::kRunning;
      held += record.turn == TurnState::kHeld;
      waiting += record.turn == TurnState::kHeld && record.state == ProcessState::kWaiting;
    }
  }
  // A hand-over is shown after 10 ms; nearly all of a turn is its owner's.
  EXPECT_GT(seen[0] + seen[1], looks * 7 / 10);
  EXPECT_NEAR(seen[0], seen[1], looks / 10);
  EXPECT_GT(held, looks / 4);
  EXPECT_EQ(waiting, held) << "who stands before its next launch has work and no turn";
}

TEST(FifoOnOneGpu, AReloadChangesThePolicyOfOneGpuWhileProgramsRun) {
  test::SchedulerRig rig(2);
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  for (const uint32_t gpu : {0U, 0U, 1U, 1U}) {
    rig.add_busy("t" + std::to_string(rig.programs.size()), {}, gpu);
    rig.run_for(150ms);
  }
  rig.run_for(1s);
  auto shares = rig.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_NEAR(shares[2] / (shares[2] + shares[3]), 0.5, 0.02) << "the other GPU is fair";
  rig.scheduler->configure(test::parse("").value());
  rig.run_for(1s);
  shares = rig.measure(1s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.5, 0.02);
}

// What the runs of a command took is known of the next one.
class LearntLengths : public ::testing::Test {
 protected:
  static constexpr uid_t kUser = 1000;

  LearntLengths() { rig_.lengths = &lengths_; }
  void start() {
    rig_.start(true, "[gpu.0]\npolicy = 'srtf'\n");
    rig_.run_for(10ms);  // its first step
  }
  // Always has work; how long it runs is what the test lets it.
  sim::Program& begin(const std::string& command, uid_t user = kUser) {
    sim::Program& program = rig_.add("t", {});
    rig_.processes.add(program.process, command, user);
    rig_.work.back() = program.endless();
    return program;
  }
  void run(const std::string& command, Nanos time, uid_t user = kUser,
           std::optional<int> status = {}) {
    const sim::Program& program = begin(command, user);
    rig_.run_for(time);
    rig_.machine.model.close_client(program.client, status);
    rig_.work.back() = 0;
    rig_.run_for(Jobs::kRememberedEnded + 1s);
  }
  ProcessRecord seen(const sim::Program& program) {
    rig_.run_for(1s);
    return rig_.record(program);
  }

  test::SchedulerRig rig_;
  LengthHistory lengths_;
};

TEST_F(LearntLengths, TheSecondRunOfACommandIsKnown) {
  start();
  run("/opt/python train.py --epochs 3", 5s);
  ASSERT_EQ(lengths_.all().size(), 1u);
  EXPECT_EQ(lengths_.all()[0].user, kUser);
  EXPECT_NEAR(static_cast<double>(lengths_.all()[0].length / 1ms), 5000, 50) << "to the last step";
  const ProcessRecord record = seen(begin("python train.py --epochs 3"));
  EXPECT_EQ(record.job_left_by, static_cast<uint32_t>(LeftSource::kLearnt));
  EXPECT_NEAR(static_cast<double>(record.job_left_us), 4e6, 0.1e6);
}

TEST_F(LearntLengths, OneThatWasKilledOrFailedTeachesNothing) {
  start();
  run("python train.py", 1s, kUser, /*status=*/9);
  run("python train.py", 1s, kUser, /*status=*/1 << 8);
  EXPECT_TRUE(lengths_.all().empty());
  run("python train.py", 3s, kUser, /*status=*/0);
  ASSERT_EQ(lengths_.all().size(), 1u);
  EXPECT_NEAR(static_cast<double>(lengths_.all()[0].length / 1ms), 3000, 50);
}

TEST_F(LearntLengths, AnotherCommandAndAnotherUsersAreNot) {
  start();
  run("python train.py --epochs 3", 5s);
  EXPECT_EQ(seen(begin("python train.py --epochs 4")).job_left_us, kUnknown64);
  EXPECT_EQ(seen(begin("python train.py --epochs 3", kUser + 1)).job_left_us, kUnknown64);
}

TEST_F(LearntLengths, WhoTakesLongerThanItsCommandDidIsUnknownFromThenOn) {
  start();
  run("python train.py", 2s);
  const sim::Program& program = begin("python train.py");
  rig_.run_for(3s);
  EXPECT_EQ(rig_.record(program).job_left_us, kUnknown64);
}

TEST_F(LearntLengths, WhatWasThereBeforeTheAgentAndAFailedStartTeachNothing) {
  const sim::Program& old = begin("python train.py");
  rig_.run_for(1s);
  start();
  rig_.run_for(5s);
  rig_.machine.model.close_client(old.client);
  rig_.work.back() = 0;
  run("python train.py", 50ms);
  EXPECT_TRUE(lengths_.all().empty());
}

// A program with the shim that is resident for long before it has anything to do: the driver's
// samples say that it is idle when its work has ended.
class Resting : public test::NoShims {
 public:
  std::vector<ProcessView> views(uint32_t) const override {
    std::vector<ProcessView> views;
    if (process.pid != 0) views.push_back({.process = process, .has_context = false});
    return views;
  }
  std::optional<SlotReading> look(const ProcessId&) const override {
    return SlotReading{
        .shows_work = true, .launches = launches, .waits = waits, .iterations = std::nullopt};
  }

  ProcessId process{};
  uint64_t launches = 1;
  uint32_t waits = 0;
};

TEST_F(LearntLengths, WhatItDoesAfterALongRestIsCounted) {
  Resting shims;
  rig_.shims = &shims;
  start();
  sim::Program& program = rig_.add("t", {});
  rig_.processes.add(program.process, "python train.py", kUser);
  shims.process = program.process;
  program.kernel(1ms);
  rig_.run_for(40s);  // it is not young any more
  ++shims.launches;
  shims.waits = 1;
  program.kernel(800ms);
  rig_.run_for(800ms);
  shims.waits = 0;
  rig_.machine.model.close_client(program.client, 0);
  rig_.run_for(Jobs::kRememberedEnded + 1s);
  ASSERT_EQ(lengths_.all().size(), 1u);
  EXPECT_NEAR(static_cast<double>(lengths_.all()[0].length / 1ms), 800, 50);
}

// The one that is known to be the shorter goes first, although it came later.
TEST_F(LearntLengths, SrtfGoesByThem) {
  start();
  run("python long.py", 20s);
  run("python short.py", 3s);
  begin("python long.py");
  rig_.run_for(500ms);
  begin("python short.py");
  rig_.run_for(500ms);
  const auto shares = rig_.measure(1s);
  EXPECT_LT(shares[2], 0.01);
  EXPECT_GT(shares[3], 0.98);
}

// Jobs on two GPUs, of which the first stops answering.
class OnAGpuThatIsLost : public ::testing::Test {
 protected:
  void start() {
    constexpr const char* kConfig = "[gpu.0]\npolicy = 'turns'\n[gpu.1]\npolicy = 'turns'\n";
    rig_.SchedulerParts::start(gpu_, &rig_.observer, rig_.clock,
                               parse_config(kConfig, "gpushare.toml", rig_.policies).value());
  }
  void lose_first() { gpu_.fail(0, 1'000'000); }

  test::SchedulerRig rig_{2};
  test::LossyGpu gpu_{rig_.gpu};
};

TEST_F(OnAGpuThatIsLost, ItsLastOrderDecidesNothingOnTheOthers) {
  start();
  std::vector<uint64_t> on_second;
  for (const char* tenant : {"a", "b"}) {
    sim::Program& program = rig_.add_busy(tenant, {});
    const auto context = rig_.machine.model.create_context(program.client, 1).value();
    on_second.push_back(rig_.machine.next_sequence++);
    rig_.machine.model.submit(program.client, {.sequence = on_second.back(),
                                               .context = context.context,
                                               .queue = 0,
                                               .kind = sim::WorkKind::kEndless,
                                               .direction = sim::Direction::kNone,
                                               .amount = 0,
                                               .sm_ppm = sim::kAllSms,
                                               .ranks = 0,
                                               .communicator = 0});
  }
  rig_.run_for(2s);
  lose_first();
  rig_.run_for(5s);
  std::vector<Nanos> before;
  for (std::size_t i = 0; i < 2; ++i) before.push_back(rig_.programs[i]->executed(on_second[i]));
  rig_.run_for(5s);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_GT(rig_.programs[i]->executed(on_second[i]) - before[i], 2s) << "program " << i;
}

TEST_F(OnAGpuThatIsLost, TurnsGoOnWhenItAnswersAgain) {
  start();
  for (const char* tenant : {"a", "b"}) rig_.add_busy(tenant, {});
  rig_.run_for(2s);
  gpu_.fail(0, 25);
  rig_.run_for(60s);
  const std::vector<double> shares = rig_.measure(5s);
  EXPECT_NEAR(shares[0], 0.5, 0.1);
  EXPECT_NEAR(shares[1], 0.5, 0.1);
}

}  // namespace
}  // namespace gpushare
