// SPDX-License-Identifier: Apache-2.0
// The first promise: no program stays frozen because the agent died. The agent is killed at random
// instants while it caps one program and lets two take turns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/race.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kKills = 20;
constexpr double kMostThawMs = 100;
// The shares are those of the two seconds that begin so long after the kill (the promise is 2 s).
// The next kill comes after them.
constexpr Nanos kRightAgain = 1s, kWatched = 2s;
// One turn of 50 ms that just falls into the two seconds, or just does not, makes 2.5 points.
constexpr double kShareError = 0.03;
constexpr const char* kTenants =
    "[tenant.capped]\nmax = \"30%\"\n[tenant.batch]\npriority = \"idle\"\n";
const std::vector<double> kShares{0.30, 0.35, 0.35};

class Ensemble {
 public:
  explicit Ensemble(Stage& stage) {
    const std::vector<std::string> arguments{"--seconds", "300", "--report-ms", "5"};
    for (const char* tenant : {"capped", "batch", "batch"})
      programs_.push_back(&stage.start("endless", arguments, tenant));
    for (const Child* program : programs_) stage.await_output(*program);
  }
  std::vector<double> rates(Time from, Time to) const {
    std::vector<double> found;
    for (const Child* program : programs_)
      found.push_back(rate_between(program->output(), "turns", from, to));
    return found;
  }
  // Returns how long after `since` the last of them was seen to make progress, or nullopt while
  // one stands still.
  std::optional<double> all_move_after_ms(Time since) const {
    double last = 0;
    for (const Child* program : programs_) {
      const auto moved = first_progress(program->output(), "turns", since);
      if (!moved) return std::nullopt;
      last = std::max(last, std::chrono::duration<double, std::milli>(*moved - since).count());
    }
    return last;
  }
  pid_t pid(size_t i) const { return programs_[i]->pid(); }

 private:
  std::vector<Child*> programs_;
};

bool is_frozen(const ProcessRecord& process) {
  return process.state == ProcessState::kFrozenCap || process.state == ProcessState::kFrozenTurn;
}

size_t frozen_count(Stage& stage) {
  const PlaneSnapshot plane = stage.plane();
  return static_cast<size_t>(std::ranges::count_if(
      plane.processes, [](const auto& numbered) { return is_frozen(numbered.record); }));
}

// Returns how long after `since` all programs make progress again. Aborts after 5 s.
double thawed_after_ms(Stage& stage, const Ensemble& ensemble, Time since) {
  std::optional<double> after;
  if (!stage.wait_until([&] { return (after = ensemble.all_move_after_ms(since)).has_value(); },
                        5s))
    give_up("wait for progress", "a program stays frozen");
  return *after;
}

void kill_agent(Stage& stage, Report& report) {
  const double solo = stage.solo().endless_turns_per_ms;
  stage.start_agent(kTenants);
  const Ensemble ensemble(stage);
  std::mt19937 random(1);  // the same instants every time
  std::uniform_int_distribution<int> later_us(100'000, 400'000);
  std::vector<double> thaw_ms, share_errors, found_frozen;
  std::vector<double> capped_shares;
  stage.wait_until(Stage::now() + 2s);
  for (int i = 0; i < kKills; ++i) {
    stage.wait_until(Stage::now() + std::chrono::microseconds(later_us(random)));
    found_frozen.push_back(static_cast<double>(frozen_count(stage)));
    const auto agent = static_cast<pid_t>(stage.plane().agent.agent_pid);
    const Time killed = Stage::now();
    ::kill(agent, SIGKILL);
    thaw_ms.push_back(thawed_after_ms(stage, ensemble, killed));
    const Time from = killed + kRightAgain, to = from + kWatched;
    stage.wait_until(to + 20ms);
    const auto rates = ensemble.rates(from, to);
    std::vector<double> shares;
    for (const double rate : rates) shares.push_back(rate / sum(rates));
    share_errors.push_back(worst_error(shares, kShares));
    capped_shares.push_back(rates[0] / solo);
  }
  const uint64_t restarts = stage.plane().agent.restarts;

  const bool saw_frozen = stage.wait_until([&] { return frozen_count(stage) > 0; }, 5s);
  stage.kill_agent_and_supervisor();
  const size_t listed = stage.plane().ledger.size();
  const Time before = Stage::now();
  stage.wait_until(before + 300ms);
  const bool stood_still = !ensemble.all_move_after_ms(before).has_value();
  stage.recover();
  const double recovered_ms = thawed_after_ms(stage, ensemble, Stage::now());
  const size_t left = stage.plane().ledger.size();
  stage.kill_programs();

  report.numbers()
      .add("frozen_at_kill", found_frozen)
      .add("thawed_after_ms", thaw_ms)
      .add("share_errors", share_errors)
      .add("capped_of_solo", capped_shares)
      .add("restarts", restarts)
      .add("ledger_entries_when_both_died", listed)
      .add("recover_thawed_after_ms", recovered_ms);
  const double worst_thaw = std::ranges::max(thaw_ms);
  const double worst_share = std::ranges::max(share_errors);
  report.must("agent killed 20 times: all thawed", "<= 100 ms", "-",
              fmt::format("{:.0f} ms, median {:.0f}", worst_thaw, median(thaw_ms)),
              worst_thaw <= kMostThawMs);
  report.must(
      "shares 30/35/35 again 1 s later", "+- 3 points over 2 s", "-",
      fmt::format("{:.1f}, median {:.1f} points", 100 * worst_share, 100 * median(share_errors)),
      worst_share <= kShareError);
  report.must("both killed: frozen until --recover", "then all thawed <= 100 ms", "-",
              fmt::format("{}, {:.0f} ms", stood_still ? "frozen" : "not frozen", recovered_ms),
              saw_frozen && stood_still && recovered_ms <= kMostThawMs && left == 0);
}

constexpr Scenario kScenarios[] = {
    {"kill-agent", "SIGKILL to the agent 20 times under a cap and rotation, then to both",
     kill_agent},
};

}  // namespace

std::span<const Scenario> death_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
