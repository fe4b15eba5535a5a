// SPDX-License-Identifier: Apache-2.0
// The log of context switches is read aside and comes late, now and then by more than a turn. The
// lengths of turns do not follow it: a gang and a neighbour on each of two GPUs, whose use is told
// in lumps.
#include <gtest/gtest.h>

#include "sched/jobs/gang_turns.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class LateLog : public ::testing::TestWithParam<Nanos> {};

// Both GPUs do the same. Looks only when GangTurns asks for it.
struct World {
  explicit World(Nanos late) : late(late) {}

  // Whoever is not held has used the GPU since the last look; the log is read up to then at once
  // when it is as late as it may be.
  void pass() {
    const Time until = turns.next() == Time::max() ? now + 5ms : turns.next();
    (runs ? gang : other).untold += until - now;
    now = until;
    if (now - known >= late) {
      known = now;
      for (Program* program : {&gang, &other}) program->told = std::exchange(program->untold, {});
    }
    std::vector<GangTurns::Seen> all;
    for (const uint32_t gpu : {0U, 1U}) {
      all.push_back(seen({1, 1}, gpu, {.run = 1}, gang.told));
      const ProcessId neighbour{static_cast<pid_t>(2 + gpu), 1};
      all.push_back(seen(neighbour, gpu, {.process = neighbour}, other.told));
    }
    gang.told = other.told = {};
    turns.look(now, all);
    const bool does_run = turns.held({1, 1}, 0) == nullptr;
    if (std::exchange(runs, does_run) == does_run) return;
    lengths.push_back(now - since);
    since = now;
  }
  GangTurns::Seen seen(ProcessId process, uint32_t gpu, GangTurns::Key job, Nanos used) const {
    return {.process = process,
            .gpu = gpu,
            .job = job,
            .wants_gpu = true,
            .used = used,
            .known_until = known,
            .share = 0.5,
            .target = 0.5};
  }

  struct Program {
    Nanos untold{}, told{};
  };
  const Nanos late;
  GangTurns turns;
  Program gang, other;
  Time now{1s}, known{1s}, since{1s};
  bool runs = true;
  std::vector<Nanos> lengths;
};

TEST_P(LateLog, TurnsAreAsLongAsEver) {
  World world(GetParam());
  while (world.now < Time{30s}) world.pass();
  ASSERT_GT(world.lengths.size(), 100U);
  const Nanos turn = GangTurns::kPeriodPerGpu * 3 / 2;
  for (std::size_t i = 20; i < world.lengths.size(); ++i) {
    EXPECT_GE(world.lengths[i], turn * 0.8) << i;
    EXPECT_LE(world.lengths[i], turn * 1.2) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LateLog, ::testing::Values(0ms, 4ms, 30ms, 76ms, 200ms),
                         [](const auto& row) { return std::to_string(row.param / 1ms) + "_ms"; });

}  // namespace
}  // namespace gpushare
