// SPDX-License-Identifier: Apache-2.0
// A cap holds for programs that have the GPU to themselves, however they share out their work and
// their rests, and who is honest is not held for what others did: the switch log says nothing of
// them, and the driver's samples come late.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

class LoneCaps : public ::testing::Test {
 protected:
  // A program that works for a while now and then.
  struct Bursts {
    sim::Program* program = nullptr;
    std::vector<std::pair<uint64_t, Nanos>> kernels{};
  };

  static void work(Bursts& one, Nanos time) {
    one.kernels.emplace_back(one.program->kernel(time), time);
  }
  static Nanos executed(const SchedulerRig& rig, const Bursts& one) {
    Nanos sum{};
    for (const auto& [kernel, time] : one.kernels) {
      const bool is_over =
          std::ranges::find(rig.machine.finished, kernel, &sim::Completion::sequence) !=
          rig.machine.finished.end();
      sum += is_over ? time : one.program->executed(kernel);
    }
    return sum;
  }
  static Nanos asked(const Bursts& one) {
    Nanos sum{};
    for (const auto& [kernel, time] : one.kernels) sum += time;
    return sum;
  }
  static double of(Nanos done, Nanos time) { return std::chrono::duration<double>(done) / time; }

  SchedulerRig rig_;
};

// Four programs of one tenant rest for some seconds, and then work for a while, one after the
// other.
TEST_F(LoneCaps, ProgramsThatRestAndWorkByTurnsHaveItTogether) {
  for (const Nanos burst : {Nanos(300ms), Nanos(900ms), Nanos(1900ms), Nanos(4s)}) {
    SchedulerRig rig;
    std::vector<Bursts> all;
    rig.start();
    for (int i = 0; i < 4; ++i) all.push_back({.program = &rig.add("capped", {{"max", "10%"}})});
    rig.run_for(1s);
    constexpr Nanos kTime = 80s;
    for (Nanos now{}; now < kTime; now += burst) {
      Bursts& one = all[static_cast<size_t>(now / burst) % all.size()];
      if (executed(rig, one) == asked(one)) work(one, burst);
      rig.run_for(burst);
    }
    Nanos done{};
    for (const Bursts& one : all) done += executed(rig, one);
    EXPECT_LE(of(done, kTime), 0.12) << burst / 1ms << " ms";
    EXPECT_GE(of(done, kTime), 0.08) << burst / 1ms << " ms";
  }
}

// An honest one beside a neighbour that works for a second and rests for one.
TEST_F(LoneCaps, OneWhoseNeighbourPausesHasItAll) {
  rig_.start();
  Bursts capped{.program = &rig_.add("capped", {{"max", "10%"}})};
  Bursts other{.program = &rig_.add("other", {})};
  work(capped, 1000s);
  rig_.run_for(2s);
  const Nanos before = executed(rig_, capped);
  constexpr Nanos kTime = 60s;
  for (Nanos now{}; now < kTime; now += 2s) {
    work(other, 1s);
    rig_.run_for(2s);
  }
  EXPECT_NEAR(of(executed(rig_, capped) - before, kTime), 0.1, 0.015);
}

// An honest one that does little beside one that is frozen for its cap: it holds the GPU then, so
// that the driver's samples name it for the other one's work. It was frozen for 39 % of the time,
// and charged 2.6 times what it did, beside a cap of 45 %.
TEST_F(LoneCaps, OneThatHoldsTheGpuWhileAnotherIsFrozenIsNotHeld) {
  for (const int percent : {15, 20, 45, 70}) {
    SchedulerRig rig;
    rig.start();
    Bursts light{.program = &rig.add("light", {{"max", "10%"}})};
    Bursts heavy{.program = &rig.add("heavy", {{"max", std::to_string(percent) + "%"}})};
    work(heavy, 1000s);
    rig.run_for(6s);
    const Nanos before = executed(rig, heavy);
    constexpr Nanos kTime = 30s;
    for (Nanos now{}; now < kTime; now += 97ms) {
      work(light, 2ms);
      rig.run_for(97ms);
    }
    EXPECT_GE(executed(rig, light) + 2ms, asked(light)) << percent;
    EXPECT_LE(Nanos(rig.tenant("light").throttled_ns), kTime / 10) << percent;
    EXPECT_LE(of(Nanos(rig.tenant("light").gpu[0].gpu_time_ns), asked(light)), 3.2) << percent;
    EXPECT_NEAR(of(executed(rig, heavy) - before, kTime), percent / 100.0, 0.02) << percent;
  }
}

// Three programs of one tenant do 10 ms each, by turns, and rest on the GPU: what may have been any
// one's use was done once.
TEST_F(LoneCaps, ProgramsOfOneTenantThatRestByTurnsAreNotHeld) {
  rig_.start();
  std::vector<Bursts> all;
  for (int i = 0; i < 3; ++i) all.push_back({.program = &rig_.add("services", {{"max", "40%"}})});
  rig_.run_for(6s);
  constexpr Nanos kTime = 30s;
  for (Nanos now{}; now < kTime; now += 33ms) {
    work(all[static_cast<size_t>(now / 33ms) % all.size()], 10ms);
    rig_.run_for(33ms);
  }
  EXPECT_LE(Nanos(rig_.tenant("services").throttled_ns), kTime / 20);
  for (const Bursts& one : all) EXPECT_GE(executed(rig_, one) + 10ms, asked(one));
}

// It works before each short request of an honest one, which then holds the GPU and rests: what it
// did might have been the other one's, which now and then works all the time. After that it rests
// for a moment, so that it is not taken to be busy.
TEST_F(LoneCaps, OneThatLeavesTheGpuToAnotherIsHeld) {
  for (const Nanos apart : {4s, 8s, 15s}) {
    SchedulerRig rig;
    rig.start();
    Bursts capped{.program = &rig.add("capped", {{"max", "10%"}})};
    Bursts other{.program = &rig.add("other", {})};
    const auto work_if_done = [&](Nanos time) {
      if (executed(rig, capped) == asked(capped)) work(capped, time);
    };
    rig.run_for(6s);
    constexpr Nanos kTime = 60s;
    Nanos burst = -apart;
    for (Nanos now{}; now < kTime; now += 100ms) {
      if (now - burst >= apart) {
        burst = now;
        work(other, 300ms);
        rig.run_for(310ms);
        work_if_done(10us);
        rig.run_for(250ms);
        now += 560ms;
      }
      work_if_done(45ms);
      rig.run_for(46ms);
      work(other, 1ms);
      rig.run_for(54ms);
    }
    EXPECT_LE(of(executed(rig, capped), kTime), 0.12) << apart / 1s;
  }
}

// What it may have it gets: one that works less than its cap is not held for what it rested.
TEST_F(LoneCaps, OneThatRestsMostOfTheTimeIsNotHeld) {
  rig_.start();
  Bursts light{.program = &rig_.add("capped", {{"max", "30%"}})};
  rig_.run_for(2s);
  constexpr Nanos kTime = 40s;
  for (Nanos now{}; now < kTime; now += 2500ms) {
    work(light, 500ms);
    rig_.run_for(2500ms);
  }
  EXPECT_GE(of(executed(rig_, light), asked(light)), 0.99);
}

}  // namespace
}  // namespace gpushare
