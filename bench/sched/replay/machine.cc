// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/replay/machine.h"

#include <algorithm>

#include "sched/orders/place.h"
#include "sched/policies/policies.h"

namespace gpushare::replay {
namespace {

// No time is zero.
constexpr Time kStart{std::chrono::seconds(1)};

uint32_t place_job(const Job& job, Told told, const LengthHistory& history,
                   std::span<const std::unique_ptr<Gpu>> gpus) {
  if (gpus.size() == 1) return 0;
  std::optional<Nanos> length;
  if (told == Told::kLength) length = job.length;
  if (told == Told::kCommand) length = history.median(job.model);
  const LengthMix& mix = history.mix();
  std::vector<PlaceGpu> choices;
  for (uint32_t i = 0; i < gpus.size(); ++i)
    choices.push_back({.index = i, .waiting = work_waiting(gpus[i]->views(), mix)});
  return place({.length = length ? static_cast<double>(length->count()) : mix.index({})}, choices)
      .gpus.front();
}

}  // namespace

std::optional<MakePolicy> policy_named(std::string_view name, const Options& options) {
  const auto known = all_policies();
  const PolicyEntry* const entry = find_policy(known, name);
  if (entry == nullptr || !entry->needs.turns) return std::nullopt;
  PolicyOptions values(entry->options);
  for (const auto& [key, value] : options) {
    if (!values.has(key)) return std::nullopt;
    values.set(key, value);
  }
  return [values, wanted = std::string(name)](const LengthHistory& lengths) {
    return find_policy(all_policies(nullptr, &lengths), wanted)->make(GpuView{}, values);
  };
}

Replay replay(const Jobs& jobs, const Machine& machine) {
  Replay result{.outcomes = std::vector<Outcome>(jobs.size()), .history = machine.history};
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (uint32_t i = 0; i < machine.gpus; ++i)
    gpus.push_back(std::make_unique<Gpu>(i, machine.policy(result.history), machine.costs,
                                         machine.told, result.history));
  for (size_t arrived = 0;;) {
    const auto soonest = std::ranges::min_element(gpus, {}, &Gpu::next);
    const Time next = (*soonest)->next();
    if (arrived == jobs.size() && std::ranges::all_of(gpus, &Gpu::is_empty)) break;
    if (arrived < jobs.size() && kStart + jobs[arrived].submit <= next) {
      const Job& job = jobs[arrived];
      const Time now = kStart + job.submit;
      for (const auto& gpu : gpus) gpu->account(now);
      const uint32_t index = place_job(job, machine.told, result.history, gpus);
      gpus[index]->add(arrived + 1, job, now, result.outcomes[arrived]);
      ++arrived;
      continue;
    }
    (*soonest)->advance(next);
  }
  for (Outcome& outcome : result.outcomes) {
    outcome.started = *outcome.started - kStart.time_since_epoch();
    outcome.ended = *outcome.ended - kStart.time_since_epoch();
  }
  for (const auto& gpu : gpus) {
    result.switches += gpu->switches();
    result.stops += gpu->stops();
    result.decisions += gpu->decisions();
    result.used += gpu->used();
    result.lost += gpu->lost();
  }
  return result;
}

}  // namespace gpushare::replay
