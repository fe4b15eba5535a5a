// SPDX-License-Identifier: Apache-2.0
// What people see of turns: the members of the control plane's records, and the words for a wait.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sched/step/turn_taking.h"

namespace gpushare {
namespace {

uint64_t instant(Time time) { return static_cast<uint64_t>(time.time_since_epoch().count()); }

uint32_t micros(Nanos time) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(std::chrono::duration_cast<Micros>(time).count(), 0, kUnknown32 - 1));
}

}  // namespace

// While it stops, what it is waited for says more than whose turn comes.
std::string TurnTaking::words(const ProcessId& process) const {
  const uint64_t job = jobs_.job_of(process);
  const JobTurn* const turn = conductor_.find(job);
  if (turn == nullptr || turn->state() == TurnState::kFree) return {};
  if (turn->state() == TurnState::kStopping) {
    switch (turn->rung()) {
      case Rung::kGate:
        return "is to stop before its next launch";
      case Rung::kFreeze:
        return "is being frozen";
      default:
        return "is to stop at its boundary";
    }
  }
  const JobDecision* const found = decision(job);
  return found == nullptr ? "" : found->reason;
}

// Of a turn that has ended the instant is that at which it stood, by its own clock.
void TurnTaking::tell_of_turns(Time now) {
  if (outside_.listener == nullptr) return;
  const auto has_turn = [&](uint32_t gpu, uint64_t job) {
    const JobTurn* const turn = conductor_.find(job);
    return turn != nullptr && turn->occupies() && decisions_.contains(gpu);
  };
  std::erase_if(turns_told_, [&](const auto& told) {
    const auto& [gpu, job] = told.first;
    if (has_turn(gpu, job)) return false;
    const JobTurn* const turn = conductor_.find(job);
    const bool stands = turn != nullptr && turn->state() != TurnState::kFree;
    outside_.listener->on_turn({.at = stands ? std::min(turn->stood(), now) : now,
                                .gpu = gpu,
                                .job = told.second.name,
                                .pid = told.second.pid,
                                .begins = false});
    return true;
  });
  for (const Job& job : jobs_.all()) {
    for (const auto& [gpu, decisions] : decisions_) {
      if ((job.gpus & uint64_t{1} << gpu) == 0 || !has_turn(gpu, job.id)) continue;
      const auto [at, is_new] = turns_told_.try_emplace({gpu, job.id});
      if (!is_new) continue;
      at->second = {.name = job.name, .pid = job.processes.empty() ? 0 : job.processes.front().pid};
      outside_.listener->on_turn({.at = std::min(conductor_.find(job.id)->since(), now),
                                  .gpu = gpu,
                                  .job = at->second.name,
                                  .pid = at->second.pid,
                                  .begins = true});
    }
  }
}

void TurnTaking::describe(uint32_t gpu, GpuRecord& record) const {
  const Gaps& gaps = conductor_.gaps(gpu);
  record.gaps = gaps.count();
  record.gaps_missed = gaps.missed();
  if (gaps.count() == 0) return;
  record.gap_p50_us = micros(gaps.at(500));
  record.gap_p99_us = micros(gaps.at(990));
}

void TurnTaking::describe(const ProcessId& process, uint32_t gpu, ProcessRecord& record) const {
  if (!has_orders()) return;
  const uint64_t id = jobs_.job_of(process);
  const auto job = std::ranges::lower_bound(jobs_.all(), id, {}, &Job::id);
  const JobTurn* const turn = conductor_.find(id);
  if (job == jobs_.all().end() || job->id != id || turn == nullptr) return;
  record.job = id;
  record.job_arrived_ns = instant(job->arrived);
  record.job_service_ns = static_cast<uint64_t>(std::max(job->service, Nanos{}).count());
  record.job_iterations = job->iterations;
  record.turn = turn->state();
  record.turn_since_ns = instant(turn->since());
  if (const auto left = left_.find(id); left != left_.end() && left->second.time) {
    record.job_left_us =
        static_cast<uint64_t>(std::chrono::duration_cast<Micros>(*left->second.time).count());
    record.job_left_by = static_cast<uint32_t>(left->second.source);
  }
  if (const auto order = decisions_.find(gpu); order != decisions_.end()) {
    const auto at = std::ranges::find(order->second, id, &JobDecision::job);
    if (at != order->second.end())
      record.job_place = static_cast<uint32_t>(at - order->second.begin()) + 1;
  }
  if (record.note[0] == '\0') {
    const std::string text = words(process);
    text.copy(record.note, sizeof record.note - 1);
  }
}

}  // namespace gpushare
