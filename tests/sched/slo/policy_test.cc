// SPDX-License-Identifier: Apache-2.0
// The policy `slo` through the machinery that carries it out (sched/spatial/spatial.h), against
// programs in virtual time that obey their slots.
#include "sched/slo/policy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/sched/support/slo_programs.h"
#include "tests/sched/support/slo_step.h"
#include "tests/sched/support/spatial_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Kind = LatencyShape::Kind;

WorldTenant closed(LatencyShape shape, double full_speed = 0.010) {
  return {.shape = shape, .full_speed = full_speed};
}
WorldTenant requests(LatencyShape shape, double rate, double full_speed = 0.010) {
  return {.shape = shape, .full_speed = full_speed, .arrivals = rate};
}

class SloPolicyTest : public ::testing::Test {
 protected:
  uint32_t make(const std::string& name, std::vector<Setting> settings) {
    return rig_.tenants.set(name, settings, true).value();
  }
  SloProgram& come(uint32_t tenant, const WorldTenant& work, const std::string& command = "serve") {
    SloProgram& program =
        *programs_.emplace_back(std::make_unique<SloProgram>(++pids_, tenant, work));
    const ShimRequest wish = rig_.wish(tenant);
    EXPECT_EQ(wish.features, kShimFeatures);
    program.slot->gate = wish.is_closed ? 1 : 0;
    program.slot->gpus[0].wanted = wish.gpus[0].groups;
    commands_[program.id] = command;
    return program;
  }
  void go(const SloProgram& program) {
    std::erase_if(programs_, [&](const auto& one) { return one.get() == &program; });
  }
  void step() {
    now_ += 10ms;
    std::vector<ShimClient> clients;
    for (const auto& program : programs_) {
      program->others = 0;
      for (const auto& other : programs_)
        if (other->tenant != program->tenant &&
            (other->slot->gpus[0].applied & program->slot->gpus[0].applied) != 0)
          program->others += other->load();
      program->run_until(now_);
      clients.push_back(
          {program->id, program->tenant, {0}, program->slot.get(), commands_[program->id]});
    }
    rig_.step(now_, std::move(clients));
    expect_disjoint();
  }
  void run(Nanos time) {
    for (const Time end = now_ + time; now_ < end;) step();
  }
  void expect_disjoint() const {
    for (const auto& a : programs_)
      for (const auto& b : programs_)
        if (a->tenant < b->tenant && (a->slot->gate & 1) == 0 && (b->slot->gate & 1) == 0 &&
            !(may_share_.contains(a->tenant) && may_share_.contains(b->tenant))) {
          ASSERT_EQ(a->slot->gpus[0].applied & b->slot->gpus[0].applied, 0u);
        }
  }
  SloStatus status(uint32_t tenant) const { return rig_.status(tenant); }
  uint32_t groups(uint32_t tenant) const {
    return std::min(rig_.partition(tenant).entitled / 8, 15U);
  }
  static uint32_t needed(SloProgram& program, Nanos slo) {
    WorldTenant work = program.work();
    work.slo = static_cast<double>(slo.count()) * 1e-9;
    return fewest_groups(work);
  }
  // As a new agent that knows these knees.
  void restart(KneeStore* knees) {
    const auto make = [knees](const GpuView& gpu) {
      return std::make_unique<SloPolicy>(gpu, FairOptions{}, knees);
    };
    rig_.restart({kWorldGpu}, make, kShimFeatures);
  }
  SloPolicyTest() { restart(nullptr); }

  std::set<uint32_t> may_share_;  // tenants
  test::SpatialRig rig_{{}};
  std::vector<std::unique_ptr<SloProgram>> programs_;
  std::map<ProcessId, std::string> commands_;
  pid_t pids_ = 100;
  Time now_{1s};
};

TEST_F(SloPolicyTest, ItTakesWhatItsTargetNeedsAndTheRestIsTheOthers) {
  const uint32_t serve = make("serve", {{"slo_us", "40000"}}), train = make("train", {});
  SloProgram& program = come(serve, closed({Kind::kLinear, 0}));
  come(train, closed({Kind::kLinear, 0}));
  run(4s);
  const uint32_t right = needed(program, 40ms);
  EXPECT_GE(groups(serve), right);
  EXPECT_LE(groups(serve), right + 1);
  EXPECT_EQ(groups(serve) + groups(train), 15u);
  EXPECT_EQ(status(serve).state, SloState::kMeets);
  EXPECT_EQ(status(train).state, SloState::kRest);
  EXPECT_LE(status(serve).latency, 0.040);
  EXPECT_EQ(status(serve).source, ShimSource::kAnnounced);
}

TEST_F(SloPolicyTest, WhoComesHasItsPartByWeightAtOnce) {
  const uint32_t train = make("train", {}), serve = make("serve", {{"slo_us", "1000"}});
  come(train, closed({Kind::kLinear, 0}));
  run(1500ms);
  EXPECT_EQ(groups(train), 15u);
  come(serve, closed({Kind::kLinear, 0}));
  run(100ms);
  EXPECT_EQ(groups(serve), 7u);
  EXPECT_EQ(status(serve).state, SloState::kUnmeasured);
}

TEST_F(SloPolicyTest, WhoWasThereFirstDoesNotKeepAllOfItUntilItIsMeasured) {
  const uint32_t a = make("a", {{"slo_us", "40000"}}), b = make("b", {{"slo_us", "40000"}}),
                 train = make("train", {});
  come(a, closed({Kind::kLinear, 0})).is_stuck = true;
  run(100ms);
  come(b, closed({Kind::kLinear, 0})).is_stuck = true;
  come(train, closed({Kind::kLinear, 0}));
  run(100ms);
  for (const uint32_t tenant : {a, b, train}) EXPECT_EQ(groups(tenant), 5u);
}

// The steps of work of slo_step.h, through readings, assignments and moves: settled as soon as in
// theory, but for the round in which the step came and one more, whose measurement began before the
// move.
TEST_F(SloPolicyTest, SettlesChangedWorkInFewRoundsAndDoesNotOvershoot) {
  for (const LoadStep& load : load_steps()) {
    if (load.arrivals_before >= 0) continue;
    SCOPED_TRACE(load.name);
    programs_.clear();
    restart(nullptr);
    const WorldTenant work{.shape = load.shape, .full_speed = 0.010 * load.work_before};
    const Nanos slo(static_cast<int64_t>(work.full_speed * load.slo_factor * 1e9));
    const uint32_t serve = make("serve", {{"slo_us", std::to_string(slo.count() / 1000)}});
    SloProgram& program = come(serve, work);
    come(make("train", {}), closed({Kind::kLinear, 0}));
    run(4s);
    for (int i = 0; i < 30 && status(serve).knee == 0; ++i) run(1s);
    run(2s);
    program.set_full_speed(0.010 * load.work_after);
    const uint32_t right = needed(program, slo);
    uint32_t most = 0;
    int last_wrong = 0;
    for (int round = 1; round <= 15; ++round) {
      run(1s);
      if (status(serve).state == SloState::kSampling) continue;
      const uint32_t has = groups(serve);
      const double response = steady_response(program.work(), has);
      const bool is_met = response <= static_cast<double>(slo.count()) * 1.05e-9;
      if (!is_met || has > right + 2) last_wrong = round;
      if (load.work_after > load.work_before) most = std::max(most, has);
    }
    EXPECT_LE(last_wrong, 5);
    EXPECT_LE(most, right + 2);
  }
}

// In the middle of a search, what was measured is of both works.
TEST_F(SloPolicyTest, WorkThatChangesWhileItsKneeIsSoughtIsFoundOut) {
  const uint32_t serve = make("serve", {{"slo_us", "42000"}});
  SloProgram& program = come(serve, closed({Kind::kAmdahl, 0.1}));
  come(make("train", {}), closed({Kind::kLinear, 0}));
  run(2s);
  while (status(serve).state != SloState::kSampling) run(1s);
  run(2s);
  program.set_full_speed(0.020);
  run(15s);
  const uint32_t right = needed(program, 42ms);
  EXPECT_GE(groups(serve), right);
  EXPECT_LE(groups(serve), right + 2);
}

// Twenty services that mostly idle, on fifteen groups, each with a target that it misses on one
// group; and a training.
TEST_F(SloPolicyTest, ServicesShareSetsWhenThereAreNotEnoughForOneEach) {
  std::vector<uint32_t> services;
  std::vector<SloProgram*> programs;
  for (int i = 0; i < 20; ++i) {
    services.push_back(make("service" + std::to_string(i), {{"slo_us", "24000"}}));
    programs.push_back(&come(services.back(), requests({Kind::kAmdahl, 0.1}, 8, 0.004)));
    may_share_.insert(services.back());
  }
  const uint32_t train = make("train", {});
  come(train, closed({Kind::kLinear, 0}));
  run(10s);
  for (SloProgram* const program : programs) program->latency();
  run(10s);
  int missed = 0;
  for (SloProgram* const program : programs) missed += program->latency() > 0.024;
  EXPECT_EQ(missed, 0);
  int sharing = 0;
  for (const uint32_t tenant : services) {
    EXPECT_GT(groups(tenant), 1u);
    EXPECT_NE(status(tenant).state, SloState::kStarved);
    sharing += rig_.partition(tenant).sharers > 1;
  }
  EXPECT_GE(sharing, 10);
  EXPECT_GE(groups(train), 1u);
  EXPECT_EQ(rig_.partition(train).sharers, 1u);
  // Eighteen go: a set each for those that stay.
  for (int i = 2; i < 20; ++i) go(*programs[static_cast<size_t>(i)]);
  run(15s);
  may_share_.clear();
  run(5s);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(rig_.partition(services[static_cast<size_t>(i)]).sharers, 1u);
}

TEST_F(SloPolicyTest, WhoOnlyAsksForATargetItselfSharesWithNobody) {
  std::vector<uint32_t> tenants;
  for (int i = 0; i < 8; ++i) {
    const bool asks = i == 0;
    tenants.push_back(
        make("service" + std::to_string(i),
             asks ? std::vector<Setting>{} : std::vector<Setting>{{"slo_us", "9000"}}));
    SloProgram& program = come(tenants.back(), requests({Kind::kLinear, 0}, 3, 0.002));
    if (asks) program.slot->iterations.slo_us = 9000;
    if (!asks) may_share_.insert(tenants.back());
  }
  run(15s);
  EXPECT_EQ(rig_.partition(tenants[0]).sharers, 1u);
  EXPECT_GT(rig_.partition(tenants[1]).sharers, 1u);
}

TEST_F(SloPolicyTest, WhoBeginsToAnnounceIsMeasuredFromThenOn) {
  const uint32_t serve = make("serve", {{"slo_us", "40000"}});
  SloProgram& program = come(serve, closed({Kind::kLinear, 0}));
  // As while a model warms up: the loop is recognised, then requests come and are announced.
  program.slot->iterations.source = ShimSource::kRecognised;
  run(300ms);
  program.slot->iterations.source = ShimSource::kAnnounced;
  run(3s);
  EXPECT_EQ(status(serve).source, ShimSource::kAnnounced);
  EXPECT_EQ(status(serve).state, SloState::kMeets);
}

// Requests at random: a round of 45 of them is a rough measure, and the share follows it; but it
// grows at once when more come, is never far off, and goes back.
TEST_F(SloPolicyTest, FollowsTheRateOfRequests) {
  const uint32_t serve = make("serve", {{"slo_us", "42000"}});
  SloProgram& program = come(serve, requests({Kind::kAmdahl, 0.1}, 15));
  come(make("train", {}), closed({Kind::kLinear, 0}));
  run(8s);
  program.set_arrivals(45);
  const uint32_t right = needed(program, 42ms);
  run(4s);
  program.latency();
  double over = 0, sum = 0;
  for (int round = 0; round < 30; ++round) {
    run(1s);
    sum += groups(serve);
    over += program.latency() > 0.042 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 30, right, 2);
  EXPECT_LE(over, 10);
  program.set_arrivals(15);
  run(5s);
  EXPECT_LE(groups(serve), needed(program, 42ms) + 2);
}

// A hundred times as many requests as before, and a round is just over.
TEST_F(SloPolicyTest, WhoFallsBehindIsHelpedBeforeTheNextRound) {
  const uint32_t serve = make("serve", {{"slo_us", "42000"}}),
                 capped = make("capped", {{"slo_us", "42000"}, {"sm_percent", "40"}}),
                 train = make("train", {});
  SloProgram& program = come(serve, requests({Kind::kLinear, 0}, 4, 0.002));
  SloProgram& other = come(capped, requests({Kind::kLinear, 0}, 4, 0.002));
  come(train, closed({Kind::kLinear, 0}));
  run(40s);  // their knees are found
  const auto before = groups(serve);
  ASSERT_LT(before, 4u);
  const auto overload = [&](SloProgram& one) {
    one.set_arrivals(400);
    const uint64_t arrived = one.slot->iterations.arrivals;
    for (int i = 0; i < 1000 && one.slot->iterations.arrivals < arrived + 20; ++i) step();
    run(150ms);
  };
  overload(program);
  EXPECT_EQ(groups(train), 1u);
  EXPECT_EQ(groups(serve), 15 - 1 - groups(capped));
  // Both are: the other gets no more than it may have.
  overload(other);
  EXPECT_EQ(groups(capped), 6u);
  EXPECT_EQ(groups(serve), 8u);
  program.set_arrivals(4);
  other.set_arrivals(4);
  run(15s);
  EXPECT_LE(groups(serve), before + 1);
  EXPECT_GE(groups(train), 8u) << "it has the rest again";
}

TEST_F(SloPolicyTest, WhoOnlyAsksForATargetIsNotHelped) {
  const uint32_t serve = make("serve", {}), train = make("train", {});
  SloProgram& program = come(serve, requests({Kind::kLinear, 0}, 4, 0.002));
  program.slot->iterations.slo_us = 42000;
  come(train, closed({Kind::kLinear, 0}));
  run(40s);
  while (status(serve).state == SloState::kSampling) step();
  step();
  const uint32_t before = groups(serve);
  ASSERT_LT(before, 4u);
  // A queue, of which no round knows yet.
  program.slot->iterations.arrivals += 30;
  for (int i = 0; i < 20; ++i) {
    step();
    EXPECT_EQ(groups(serve), before) << i;
  }
}

// Many requests are answered together: their number is no queue.
TEST_F(SloPolicyTest, WhoAnswersRequestsTogetherIsNotBehind) {
  const uint32_t serve = make("serve", {{"slo_us", "42000"}}), train = make("train", {});
  SloProgram& program = come(serve, requests({Kind::kLinear, 0}, 20, 0.002));
  come(train, closed({Kind::kLinear, 0}));
  for (int i = 0; i < 2000; ++i) {
    const uint64_t ended = program.slot->iterations.ended;
    step();
    program.slot->iterations.arrivals += 7 * (program.slot->iterations.ended - ended);
  }
  EXPECT_LE(groups(serve), 3u);
  EXPECT_GE(groups(train), 10u);
}

TEST_F(SloPolicyTest, WhenThereIsNotEnoughTheSmallDemandIsServedAndItSaysSo) {
  const uint32_t small = make("small", {{"slo_us", "80000"}}),
                 large = make("large", {{"slo_us", "6000"}}), train = make("train", {});
  come(small, closed({Kind::kLinear, 0}));
  come(large, closed({Kind::kLinear, 0}));
  come(train, closed({Kind::kLinear, 0}));
  run(5s);
  EXPECT_EQ(status(small).state, SloState::kMeets);
  EXPECT_EQ(status(large).state, SloState::kStarved);
  EXPECT_GT(status(large).needs, groups(large));
  EXPECT_EQ(groups(train), 1u);
}

TEST_F(SloPolicyTest, WhatAProgramAsksForIsNeverMoreThanItsPartByWeight) {
  const uint32_t greedy = make("greedy", {}), train = make("train", {{"weight", "200"}});
  SloProgram& program = come(greedy, closed({Kind::kLinear, 0}));
  program.slot->iterations.slo_us = 1;
  come(train, closed({Kind::kLinear, 0}));
  run(5s);
  EXPECT_EQ(groups(greedy), 5u);
  EXPECT_EQ(groups(train), 10u);
  EXPECT_TRUE(status(greedy).is_asked_by_program);
  EXPECT_EQ(status(greedy).state, SloState::kAtMost);
  program.slot->iterations.slo_us = 200'000;
  run(3s);
  EXPECT_LE(groups(greedy), 2u) << "less it may ask for";
}

TEST_F(SloPolicyTest, TheTenantsOwnTargetBeatsThePrograms) {
  const uint32_t serve = make("serve", {{"slo_us", "40000"}});
  come(serve, closed({Kind::kLinear, 0})).slot->iterations.slo_us = 1;
  come(make("train", {}), closed({Kind::kLinear, 0}));
  run(4s);
  EXPECT_EQ(status(serve).slo, 40ms);
  EXPECT_LE(groups(serve), 5u);
}

TEST_F(SloPolicyTest, SmPercentIsTheMost) {
  const uint32_t serve = make("serve", {{"slo_us", "1000"}, {"sm_percent", "25"}}),
                 train = make("train", {{"sm_percent", "50"}});
  come(serve, closed({Kind::kLinear, 0}));
  come(train, closed({Kind::kLinear, 0}));
  run(5s);
  EXPECT_EQ(groups(serve), 4u);
  EXPECT_EQ(status(serve).state, SloState::kAtMost);
  EXPECT_EQ(groups(train), 8u);
}

TEST_F(SloPolicyTest, WithoutIterationsItKeepsWhatItHas) {
  const uint32_t serve = make("serve", {{"slo_us", "10000"}});
  SloProgram& program = come(serve, closed({Kind::kLinear, 0}));
  program.is_stuck = true;
  come(make("train", {}), closed({Kind::kLinear, 0}));
  run(5s);
  EXPECT_EQ(groups(serve), 7u);
  EXPECT_EQ(status(serve).state, SloState::kUnmeasured);
}

TEST_F(SloPolicyTest, TheKneeIsFoundWhileItServesWithoutAMissAndKept) {
  const std::string path = ::testing::TempDir() + "/knees-" + std::to_string(::getpid());
  std::filesystem::remove(path);
  const struct {
    LatencyShape shape;
    uint32_t knee;  // as an offline sweep says
  } rows[] = {{{Kind::kPlateau, 4}, 4}, {{Kind::kPlateau, 9}, 9}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.shape.parameter);
    auto store = KneeStore::open(path).value();
    programs_.clear();
    restart(&store);
    const uint32_t serve = make("serve", {{"slo_us", "26000"}});
    make("train", {});
    SloProgram& program = come(serve, closed(row.shape), "serve --knee");
    come(rig_.tenants.find("train").value(), closed({Kind::kLinear, 0}));
    run(4s);
    program.latency();
    int sampled = 0;
    for (int second = 0; second < 20; ++second) {
      run(1s);
      if (status(serve).state == SloState::kSampling) ++sampled;
      const double latency = program.latency();
      ASSERT_GT(latency, 0);
      EXPECT_LE(latency, 0.026) << second;
    }
    EXPECT_TRUE(store.take_save_request());
    ASSERT_TRUE(store.save());
    // One less than all: the other tenant keeps a group.
    EXPECT_NEAR(status(serve).knee, row.knee, 1);
    EXPECT_GE(sampled, 1);
    EXPECT_LE(sampled, 12) << "six samples, each measured within two rounds";
    // The next run of the same command begins with it.
    auto again = KneeStore::open(path).value();
    restart(&again);
    programs_.clear();
    come(serve, closed(row.shape), "serve --knee");
    run(50ms);
    EXPECT_NEAR(status(serve).knee, row.knee, 1);
    std::filesystem::remove(path);
  }
}

TEST_F(SloPolicyTest, OtherWorkHasAnotherKnee) {
  const uint32_t serve = make("serve", {{"slo_us", "100000"}});
  SloProgram& program = come(serve, closed({Kind::kPlateau, 4}));
  come(make("train", {}), closed({Kind::kLinear, 0}));
  run(20s);
  ASSERT_NE(status(serve).knee, 0u);
  program.set_full_speed(0.020);
  run(3s);
  EXPECT_EQ(status(serve).knee, 0u);
}

TEST_F(SloPolicyTest, WhateverDiesOrLiesTheOthersKeepTheirParts) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  const uint32_t steady = make("steady", {{"slo_us", "40000"}});
  come(steady, closed({Kind::kLinear, 0}));
  std::vector<uint32_t> others;
  for (int i = 0; i < 5; ++i)
    others.push_back(make("t" + std::to_string(i), {{"slo_us", i % 2 == 0 ? "0" : "50000"}}));
  std::vector<SloProgram*> alive;
  for (int round = 0; round < 4000; ++round) {
    const uint32_t what = below(100);
    if (what < 2 && alive.size() < 8) {
      alive.push_back(&come(others[below(5)], below(2) == 0 ? closed({Kind::kLinear, 0})
                                                            : requests({Kind::kPlateau, 5}, 20)));
    } else if (what < 4 && !alive.empty()) {
      const auto which = static_cast<std::ptrdiff_t>(below(static_cast<uint32_t>(alive.size())));
      go(*alive[static_cast<std::size_t>(which)]);
      alive.erase(alive.begin() + which);
    } else if (what < 10 && !alive.empty()) {
      // Whatever a process writes into its slot.
      ShimIterations& own = alive[below(static_cast<uint32_t>(alive.size()))]->slot->iterations;
      own.ended = below(3) == 0 ? 0 : ~uint64_t{0} >> below(60);
      own.busy_ns = ~uint64_t{0} >> below(60);
      own.latency_ns = ~uint64_t{0} >> below(60);
      own.sequence += below(2);
      own.source = static_cast<ShimSource>(below(4));
    }
    step();
    if (HasFatalFailure()) return;
    uint32_t sum = groups(steady);
    for (const uint32_t tenant : others) sum += groups(tenant);
    ASSERT_LE(sum, 15u);
    ASSERT_GE(groups(steady), 1u);
  }
  for (const SloProgram* program : alive) go(*program);
  run(20s);
  EXPECT_EQ(status(steady).state, SloState::kMeets);
}

}  // namespace
}  // namespace gpushare
