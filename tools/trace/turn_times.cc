// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/turn_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace gpushare {

std::vector<TurnTime> turn_times(const std::vector<TraceTurn>& turns, uint64_t start_ns,
                                 uint64_t end_ns) {
  const uint64_t last_ns = std::max(start_ns, end_ns);
  std::vector<const TraceTurn*> order;
  order.reserve(turns.size());
  for (const TraceTurn& turn : turns) order.push_back(&turn);
  // Of one instant an end comes before a begin, and what came first before the rest.
  std::ranges::sort(order, {}, [](const TraceTurn* turn) {
    return std::tuple(turn->gpu, turn->t_ns, turn->is_start, turn);
  });
  std::vector<TurnTime> times;
  std::map<uint32_t, TurnTime> open;  // by GPU; without a job: nobody's
  const auto close = [&](TurnTime& turn, uint64_t t_ns) {
    turn.end_ns = t_ns;
    if (!turn.job.empty() && turn.begin_ns < turn.end_ns) times.push_back(turn);
    turn.job.clear();
  };
  for (const TraceTurn* const turn : order) {
    const uint64_t t_ns = std::clamp(turn->t_ns, start_ns, last_ns);
    const auto [at, is_first] = open.try_emplace(turn->gpu);
    TurnTime& running = at->second;
    if (turn->is_start && running.job != turn->job) {
      close(running, t_ns);
      running = {turn->gpu, turn->pid, turn->job, t_ns, 0};
    } else if (!turn->is_start && is_first) {
      running = {turn->gpu, turn->pid, turn->job, start_ns, 0};
      close(running, t_ns);
    } else if (!turn->is_start && running.job == turn->job) {
      close(running, t_ns);
    }
  }
  for (auto& [gpu, running] : open) close(running, last_ns);
  std::ranges::sort(times, {},
                    [](const TurnTime& turn) { return std::tuple(turn.gpu, turn.begin_ns); });
  return times;
}

}  // namespace gpushare
