// SPDX-License-Identifier: Apache-2.0
// 10^5 random events against GangTurns alone: whoever comes, goes, idles, is capped or changes its
// share, a GPU on which somebody wants to work always has one that may, and nobody waits for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "sched/jobs/gang_turns.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGpus = 4;
constexpr Nanos kPatience = 5s;  // ten programs, each owed a tenth of a GPU at least

class Storm {
 public:
  explicit Storm(uint32_t seed) : random_(seed) {}

  void run(int events) {
    for (int i = 0; i < events && !testing::Test::HasFailure(); ++i) {
      happen();
      advance();
    }
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void happen() {
    if (seen_.size() < 3 || (below(10) == 0 && seen_.size() < 10)) {
      const uint32_t run = 1 + below(3);
      const pid_t pid = static_cast<pid_t>(100 + next_++);
      const ProcessId process{pid, 1};
      const uint32_t gpu = below(kGpus);
      seen_.push_back(
          {.process = process,
           .gpu = gpu,
           .slot = below(3),
           .job = below(2) == 0 ? GangTurns::Key{.run = run} : GangTurns::Key{.process = process},
           .priority = static_cast<Priority>(below(8) == 0   ? 2
                                             : below(8) == 0 ? 0
                                                             : 1),
           .wants_gpu = true,
           .share = below(3) == 0 ? -1 : 0.5,
           .target = 0.1 + below(9) / 10.0});
      return;
    }
    GangTurns::Seen& one = seen_[below(static_cast<uint32_t>(seen_.size()))];
    switch (below(12)) {
      case 0:
        end(one);
        break;
      case 1:
        one.wants_gpu = !one.wants_gpu;
        break;
      case 2:
        one.is_capped = !one.is_capped;
        break;
      case 3:
        one.can_hold = !one.can_hold;
        break;
      case 4:
        one.target = below(4) == 0 ? -1 : below(11) / 10.0;
        break;
      case 5:
        one.share = below(4) == 0 ? -1 : below(11) / 10.0;
        break;
      case 6:
        if (below(20) == 0) end_all_on(below(kGpus));
        break;
      case 7:
        one.cap = below(2) == 0 ? 1 : 0.1 + below(9) / 10.0;
        break;
      default:
        break;
    }
  }

  void end(const GangTurns::Seen& one) {
    gone_[{one.slot, one.gpu}] += 1ms * below(5);
    seen_.erase(seen_.begin() + (&one - seen_.data()));
  }

  void end_all_on(uint32_t gpu) {
    for (;;) {
      const auto one = std::ranges::find(seen_, gpu, &GangTurns::Seen::gpu);
      if (one == seen_.end()) return;
      end(*one);
    }
  }

  // Those that are not held share the time of their GPU.
  void advance() {
    turns_.look(now_, seen_, std::exchange(gone_, {}));
    check();
    const Nanos step = std::min<Nanos>(std::max<Nanos>(turns_.next() - now_, 1ms), 20ms);
    now_ += step;
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      std::vector<GangTurns::Seen*> running;
      for (GangTurns::Seen& seen : seen_) {
        seen.used = seen.gpu == gpu ? Nanos{} : seen.used;
        if (seen.gpu == gpu && seen.wants_gpu && !seen.is_capped &&
            turns_.held(seen.process, gpu) == nullptr)
          running.push_back(&seen);
      }
      for (GangTurns::Seen* seen : running)
        seen->used = step / static_cast<int64_t>(running.size());
    }
  }

  void check() {
    for (const GangTurns::Seen& seen : seen_) {
      const bool is_held = turns_.held(seen.process, seen.gpu) != nullptr;
      const auto key = seen.process;
      if (!is_held || !seen.wants_gpu || seen.is_capped) last_ran_[key] = now_;
      if (is_held) {
        EXPECT_TRUE(seen.can_hold);
        // Somebody else has that time, on one of the GPUs of its job.
        bool has_runner = false;
        for (const GangTurns::Seen& other : seen_)
          has_runner |= other.wants_gpu && turns_.held(other.process, other.gpu) == nullptr;
        const bool is_job_capped = std::ranges::any_of(seen_, [&](const GangTurns::Seen& other) {
          return other.job == seen.job && other.is_capped;
        });
        EXPECT_TRUE(has_runner || is_job_capped);
      }
      const auto last = last_ran_.try_emplace(key, now_).first->second;
      const bool is_job_capped = std::ranges::any_of(seen_, [&](const GangTurns::Seen& other) {
        return other.job == seen.job && other.is_capped;
      });
      if (is_job_capped) last_ran_[key] = now_;
      EXPECT_LT(now_ - last, kPatience) << "starves";
    }
  }

  std::mt19937 random_;
  GangTurns turns_;
  std::vector<GangTurns::Seen> seen_;
  GangTurns::Uses gone_;
  std::map<ProcessId, Time> last_ran_;
  Time now_{1s};
  uint32_t next_ = 0;
};

TEST(GangStorm, SomebodyAlwaysRunsAndNobodyStarves) {
  for (uint32_t seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Storm(seed).run(10'000);
  }
}

}  // namespace
}  // namespace gpushare
