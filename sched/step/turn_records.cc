// SPDX-License-Identifier: Apache-2.0
// What people see of turns: the members of the control plane's records, and the words for a wait.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sched/step/turn_taking.h"

namespace gpushare {
namespace {

uint32_t micros(Nanos time) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(std::chrono::duration_cast<Micros>(time).count(), 0, kUnknown32 - 1));
}

}  // namespace

// While it stops, what it is waited for says more than whose turn comes.
std::string TurnTaking::words(const ProcessId& process) const {
  const Job* const job = find_job(jobs_.job_of(process));
  const JobTurn* const turn = job == nullptr ? nullptr : conductor_.find(job->id);
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
  return reason_of(*job);
}

// What a plan says of it; of a job on several GPUs the first that says anything, because a plan
// that wants it to run says nothing. Where all of them do and it waits, others have their turn on
// its GPUs.
std::string TurnTaking::reason_of(const Job& job) const {
  const bool is_on_several = std::popcount(job.gpus) > 1;
  for (const JobOrder& order : conductor_.orders()) {
    const JobDecision* const decision = order.find(job.id);
    if (decision == nullptr || decision->reason.empty()) continue;
    return is_on_several ? fmt::format("{} (GPU {})", decision->reason, order.gpu())
                         : decision->reason;
  }
  if (!is_on_several || conductor_.find(job.id)->occupies()) return {};
  for (const Job& other : jobs_.all()) {
    const uint64_t shared = other.gpus & job.gpus;
    const JobTurn* const turn = conductor_.find(other.id);
    if (other.id != job.id && shared != 0 && turn != nullptr && turn->occupies())
      return fmt::format("turn of {} (GPU {})", other.name, std::countr_zero(shared));
  }
  return {};
}

// Of a turn that has ended the instant is that at which it stood, by its own clock.
void TurnTaking::tell_of_turns(Time now) {
  if (outside_.listener == nullptr) return;
  const auto has_turn = [&](uint32_t gpu, uint64_t job) {
    const JobTurn* const turn = conductor_.find(job);
    return turn != nullptr && turn->occupies() && conductor_.order(gpu) != nullptr;
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
    for (const JobOrder& order : conductor_.orders()) {
      const uint32_t gpu = order.gpu();
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
  const Job* const job = find_job(id);
  const JobTurn* const turn = conductor_.find(id);
  if (job == nullptr || turn == nullptr) return;
  record.job = id;
  record.job_arrived_ns = stored_ns(job->arrived);
  record.job_service_ns = static_cast<uint64_t>(std::max(job->service, Nanos{}).count());
  record.job_iterations = job->iterations;
  record.turn = turn->state();
  record.turn_since_ns = stored_ns(turn->since());
  // Who is held before its next launch has nothing on the GPU, and work all the same.
  if (turn->waits() && turn->wants_gpu() &&
      (record.state == ProcessState::kIdle || record.state == ProcessState::kRunning)) {
    record.state = ProcessState::kWaiting;
    record.state_since_ns = record.turn_since_ns;
  }
  if (const auto left = left_.find(id); left != left_.end() && left->second.time) {
    record.job_left_us =
        static_cast<uint64_t>(std::chrono::duration_cast<Micros>(*left->second.time).count());
    record.job_left_by = static_cast<uint32_t>(left->second.source);
  }
  if (const JobOrder* const order = conductor_.order(gpu); order != nullptr)
    record.job_place = order->place(id);
  // What was true when it was frozen for its turn is told no longer.
  const bool is_old = record.state == ProcessState::kFrozenTurn && conductor_.order(gpu) != nullptr;
  if (record.note[0] == '\0' || is_old) {
    const std::string text = words(process);
    std::ranges::fill(record.note, '\0');
    text.copy(record.note, sizeof record.note - 1);
  }
}

}  // namespace gpushare
