// SPDX-License-Identifier: Apache-2.0
// The logs of context switches are read aside and come late, now and then by more than a turn, and
// not equally late on all GPUs. The lengths of turns do not follow them: a gang on two GPUs beside
// a neighbour on each, under a cap, and beside another gang, whose use is told in lumps.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "sched/jobs/gang_turns.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kPeriod = GangTurns::kPeriodPerGpu * 3;

struct Row {
  const char* description;
  double share;  // of the gang
  bool is_capped, is_beside_gang;
  std::array<Nanos, 2> late;  // by GPU; negative: at most so much, by chance
};

class LateLog : public ::testing::TestWithParam<Row> {};

// Whoever is not held works. A log is read up to now when it is as late as it may be.
struct World {
  explicit World(const Row& row) : row(row) {}

  void pass() {
    const Time until = turns.next() == Time::max() ? now + 5ms : turns.next();
    std::vector<GangTurns::Seen> all;
    for (const uint32_t gpu : {0U, 1U}) {
      std::array<Nanos, 2>& mine = untold[gpu];
      mine[runs ? 0 : 1] += until - now;
      std::array<Nanos, 2> told{};
      if (until - known[gpu] >= lateness(gpu)) {
        known[gpu] = until;
        told = std::exchange(mine, {});
      }
      all.push_back(seen({1, 1}, gpu, {.run = 1}, told[0], row.share));
      const ProcessId other{static_cast<pid_t>(row.is_beside_gang ? 2 : 2 + gpu), 1};
      const GangTurns::Key job =
          row.is_beside_gang ? GangTurns::Key{.run = 2} : GangTurns::Key{.process = other};
      all.push_back(seen(other, gpu, job, told[1], 1 - row.share));
      if (row.is_capped) all[all.size() - 2].cap = row.share;
    }
    now = until;
    turns.look(now, all);
    ++looks;
    const bool does_run = turns.held({1, 1}, 0) == nullptr;
    if (std::exchange(runs, does_run) == does_run) return;
    lengths.emplace_back(!does_run, now - since);
    since = now;
  }
  Nanos lateness(uint32_t gpu) {
    const Nanos late = row.late[gpu];
    return late >= 0ms ? late : Nanos(static_cast<int64_t>(random() % (-late / 1ns)));
  }
  GangTurns::Seen seen(ProcessId process, uint32_t gpu, GangTurns::Key job, Nanos used,
                       double share) const {
    return {.process = process,
            .gpu = gpu,
            .job = job,
            .wants_gpu = true,
            .used = used,
            .known_until = known[gpu],
            .share = share,
            .target = share};
  }

  const Row row;
  GangTurns turns;
  std::mt19937 random{1};
  std::array<std::array<Nanos, 2>, 2> untold{};  // by GPU: of the gang, and of the other
  Time now{1s}, since{1s};
  std::array<Time, 2> known{now, now};
  bool runs = true;
  int looks = 0;
  std::vector<std::pair<bool, Nanos>> lengths;  // whether it was the gang's, and how long
};

TEST_P(LateLog, TurnsAreAsLongAsEver) {
  const Row& row = GetParam();
  World world(row);
  while (world.now < Time{31s}) world.pass();
  const Nanos period = row.is_capped ? GangTurns::kPeriodOfCapped : kPeriod;
  ASSERT_GT(world.lengths.size(), 30s / period);
  for (std::size_t i = 20; i < world.lengths.size(); ++i) {
    const auto& [is_gangs, length] = world.lengths[i];
    const double due =
        (is_gangs ? row.share : 1 - row.share) * std::chrono::duration<double>(period).count();
    EXPECT_NEAR(std::chrono::duration<double>(length).count(), due, 0.2 * due) << i;
  }
  EXPECT_LT(world.looks, 100 * 30) << "it does not look again and again";
}

INSTANTIATE_TEST_SUITE_P(
    All, LateLog,
    ::testing::Values(Row{"never", 0.5, false, false, {0ms, 0ms}},
                      Row{"by_a_little", 0.5, false, false, {4ms, 4ms}},
                      Row{"by_much", 0.5, false, false, {30ms, 30ms}},
                      Row{"by_a_turn", 0.5, false, false, {76ms, 76ms}},
                      Row{"by_more", 0.5, false, false, {200ms, 200ms}},
                      Row{"on_one_gpu", 0.5, false, false, {0ms, 4ms}},
                      Row{"on_one_gpu_by_much", 0.75, false, false, {0ms, 76ms}},
                      Row{"by_chance", 0.5, false, false, {-10ms, -10ms}},
                      Row{"by_much_by_chance", 0.25, false, false, {-60ms, -20ms}},
                      Row{"capped", 0.4, true, false, {0ms, 0ms}},
                      Row{"capped_by_much", 0.4, true, false, {30ms, 30ms}},
                      Row{"capped_by_chance", 0.4, true, false, {-60ms, -5ms}},
                      Row{"two_gangs", 0.75, false, true, {0ms, 0ms}},
                      Row{"two_gangs_by_a_turn", 0.75, false, true, {76ms, 76ms}},
                      Row{"two_gangs_by_more", 0.5, false, true, {200ms, 200ms}}),
    [](const auto& row) { return row.param.description; });

}  // namespace
}  // namespace gpushare
