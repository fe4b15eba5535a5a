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

void TurnTaking::describe(uint32_t gpu, GpuRecord& record) const {
  const Gaps& gaps = conductor_.gaps(gpu);
  record.gaps = gaps.count();
  record.gaps_missed = gaps.missed();
  if (gaps.count() == 0) return;
  record.gap_p50_us = micros(gaps.at(500));
  record.gap_p99_us = micros(gaps.at(990));
}

void TurnTaking::describe(const ProcessId& process, uint32_t gpu, ProcessRecord& record) const {
  record.run = state_.tenants.run_of(process).number;
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
