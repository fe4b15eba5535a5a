// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/standstill.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

namespace gpushare {
namespace {

// What begins to run so soon after a thaw does so because of it: others may have their slices
// before.
constexpr Nanos kWokenSoon = std::chrono::milliseconds(20);
// Its work before it stood still went on for so long: otherwise it may just have begun. That need
// not have been seen of one that was there before the agent, nor of one that waits for the GPU.
constexpr Nanos kSteady = std::chrono::seconds(10);
constexpr std::size_t kMostTrials = 2;  // at one look

}  // namespace

// The same for all trials of one standstill, and not to be foretold by a period.
Nanos Standstill::jitter(const Watch& watch, const ProcessId& process) {
  const auto since = stored_ns(watch.since);
  const uint64_t mixed = (since ^ static_cast<uint64_t>(process.pid)) * 0x9E3779B97F4A7C15;
  return Nanos(static_cast<int64_t>((mixed >> 32) % static_cast<uint64_t>(kJitter.count())));
}

// It has woken. Returns true if somebody had frozen it.
bool Standstill::judge(Watch& watch, const Standing& one) {
  const bool is_by_trial =
      watch.ended != Time{} && one.woke >= watch.begun && one.woke <= watch.ended + kWokenSoon;
  const bool was_woken = std::exchange(watch.was_woken, is_by_trial);
  if (!is_by_trial) {
    watch.woke_itself = one.woke;
    watch.steady_since = one.woke;
    return false;
  }
  // What the first samples say may be of the time before.
  const bool was_frozen_before = one.was_there && watch.since - one.came < kStill;
  const bool was_steady = was_frozen_before || watch.since - watch.steady_since >= kSteady;
  if (watch.woke_itself == Time{}) return was_steady || watch.has_waited;
  return was_woken && one.woke - watch.woke_itself >= kWakeful;
}

Standstill::Verdict Standstill::look(Time now, std::span<const Standing> all) {
  Verdict verdict;
  std::set<ProcessId> there;
  std::vector<std::tuple<Nanos, Time, ProcessId>> due;  // who had the fewest trials goes first
  for (const Standing& one : all) {
    there.insert(one.process);
    const auto [at, is_new] = watches_.try_emplace(one.process);
    Watch& watch = at->second;
    if (is_new) {
      watch.since = watch.steady_since = one.came;
      watch.woke = one.woke;
    }
    if (std::exchange(watch.woke, one.woke) != one.woke && judge(watch, one)) {
      watch.found = now;
      verdict.found.push_back(one.process);
    }
    const bool has_shown = one.shown > watch.since;
    if (one.is_held || has_shown) {
      watch.since = one.is_held ? now : one.shown;
      watch.pause = {};
      watch.rounds = kFirstRounds;
      watch.has_waited = true;
    }
    if (one.is_held || now - watch.since < kBetweenLooks) continue;
    watch.has_waited &= one.waits;
    const Time first =
        watch.since + (is_victim(watch, now) ? Nanos{} : kStill + jitter(watch, one.process));
    if (now >= (watch.pause == Nanos{} ? first : watch.next))
      due.emplace_back(watch.pause, watch.since, one.process);
  }
  std::erase_if(watches_, [&](const auto& entry) { return !there.contains(entry.first); });
  std::ranges::sort(due);
  if (due.size() > kMostTrials) due.resize(kMostTrials);
  for (const auto& [pause, since, process] : due) {
    Watch& watch = watches_.at(process);
    verdict.trials.push_back({process, watch.rounds});
    watch.rounds = std::min(2 * watch.rounds, kMostRounds);
    watch.pause =
        std::clamp(2 * pause, is_victim(watch, now) ? kBetweenLooks : kStill, kLongestPause);
    watch.next = now + watch.pause;
  }
  return verdict;
}

void Standstill::thawed(const ProcessId& process, Time begun, Time ended) {
  const auto at = watches_.find(process);
  if (at == watches_.end()) return;
  at->second.begun = begun;
  at->second.ended = ended;
}

}  // namespace gpushare
