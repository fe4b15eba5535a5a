// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/conductor.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

const Conductor::Job* find_job(std::span<const Conductor::Job> jobs, uint64_t id) {
  const auto at = std::ranges::lower_bound(jobs, id, {}, &Conductor::Job::id);
  return at == jobs.end() || at->id != id ? nullptr : &*at;
}

}  // namespace

void Conductor::set_order(JobOrder order) {
  const auto at = std::ranges::lower_bound(orders_, order.gpu(), {}, &JobOrder::gpu);
  if (at != orders_.end() && at->gpu() == order.gpu())
    *at = std::move(order);
  else
    orders_.insert(at, std::move(order));
}

void Conductor::drop_order(uint32_t gpu) {
  std::erase_if(orders_, [&](const JobOrder& order) { return order.gpu() == gpu; });
}

const JobOrder* Conductor::order(uint32_t gpu) const {
  const auto at = std::ranges::lower_bound(orders_, gpu, {}, &JobOrder::gpu);
  return at == orders_.end() || at->gpu() != gpu ? nullptr : &*at;
}

// One that nobody has asked anything of yet has not waited.
std::vector<uint64_t> Conductor::choose(Time now) const {
  std::vector<Contender> contenders;
  contenders.reserve(jobs_.size());
  for (const Job& job : jobs_) {
    const JobTurn& turn = turns_.at(job.id);
    contenders.push_back({.id = job.id,
                          .gpus = job.gpus,
                          .priority = job.priority,
                          .wants_gpu = turn.wants_gpu(),
                          .runs = turn.occupies(),
                          .since = turn.state() == TurnState::kFree ? now : turn.since()});
  }
  return who_runs(now, orders_, contenders);
}

// Of a job on several GPUs the longest that a plan gives it.
Nanos Conductor::grace_of(uint64_t job) const {
  Nanos grace{};
  for (const JobOrder& order : orders_)
    if (const JobDecision* const decision = order.find(job); decision != nullptr)
      grace = std::max(grace, decision->grace);
  return grace;
}

bool Conductor::is_named(uint64_t job) const {
  return std::ranges::any_of(orders_,
                             [&](const JobOrder& order) { return order.find(job) != nullptr; });
}

// REQUIRES: the job was chosen, so that there is room for it once those have gone that were not.
bool Conductor::may_enter(const Job& job, Time now) const {
  const JobTurn& own = turns_.at(job.id);
  const bool begins_by_launch = own.state() == TurnState::kHeld && own.rung() != Rung::kNone;
  return std::ranges::all_of(orders_, [&](const JobOrder& order) {
    const uint64_t bit = uint64_t{1} << order.gpu();
    if ((job.gpus & bit) == 0) return true;
    const auto others = std::ranges::count_if(jobs_, [&](const Job& other) {
      const JobTurn& turn = turns_.at(other.id);
      return other.id != job.id && (other.gpus & bit) != 0 && turn.occupies() &&
             !(begins_by_launch && turn.is_about_to_stand(now));
    });
    return static_cast<std::size_t>(others) < std::max<std::size_t>(order.room(), 1);
  });
}

void Conductor::look(Time now, std::vector<Job> jobs) {
  jobs_ = std::move(jobs);
  std::erase_if(turns_, [&](const auto& turn) { return find_job(jobs_, turn.first) == nullptr; });
  for (const Job& job : jobs_) turns_[job.id].look(now, job.processes);
  note_gaps();
}

bool Conductor::decide(Time now) {
  const std::vector<uint64_t> chosen = choose(now);
  const auto is_chosen = [&](const Job& job) { return std::ranges::binary_search(chosen, job.id); };
  for (const Job& job : jobs_) {
    JobTurn& turn = turns_.at(job.id);
    if (!is_named(job.id))
      turn.release(now);
    else if (!is_chosen(job))
      turn.stop(now, grace_of(job.id));
  }
  bool has_let_in = false;
  for (const Job& job : jobs_) {
    JobTurn& turn = turns_.at(job.id);
    if (!is_chosen(job) || turn.state() == TurnState::kRunning) continue;
    // One that was still stopping goes on: nobody was let in in its place.
    const bool goes_on = turn.state() == TurnState::kStopping && has_turn(job);
    if (goes_on || may_enter(job, now)) {
      let_in(job, turn, now);
      has_let_in = true;
    } else {
      turn.stop(now, grace_of(job.id));
    }
  }
  return has_let_in;
}

// The job was the last that was let in on each of its GPUs.
bool Conductor::has_turn(const Job& job) const {
  return std::ranges::all_of(orders_, [&](const JobOrder& order) {
    if ((job.gpus & uint64_t{1} << order.gpu()) == 0) return true;
    const auto handover = handovers_.find(order.gpu());
    return handover != handovers_.end() && handover->second.next == job.id;
  });
}

void Conductor::let_in(const Job& job, JobTurn& turn, Time now) {
  // One that stood before a launch goes on in the middle of an iteration.
  const bool waited = turn.wants_gpu() && turn.rung() == Rung::kBoundary;
  const Time since = turn.since();
  turn.run(now);
  for (const JobOrder& order : orders_) {
    if ((job.gpus & uint64_t{1} << order.gpu()) == 0) continue;
    Handover& handover = handovers_[order.gpu()];
    if (handover.next == job.id) continue;
    const auto last = turns_.find(std::exchange(handover.next, job.id));
    const bool has_stood = last != turns_.end() && last->second.stood() >= since;
    const bool stands_soon = last != turns_.end() && last->second.occupies();
    handover.last = waited && (has_stood || stands_soon) ? last->first : 0;
    handover.since = since;
    handover.stood = has_stood ? last->second.stood() : Time{};
  }
}

// A gap is known once the last job has stood and the next one has begun an iteration.
void Conductor::note_gaps() {
  for (auto& [gpu, handover] : handovers_) {
    if (handover.last == 0) continue;
    if (handover.stood == Time{}) {  // the next one was let in just before
      const JobTurn* const last = find(handover.last);
      if (last != nullptr && last->occupies()) continue;
      if (last != nullptr && last->stood() >= handover.since) handover.stood = last->stood();
    }
    const Job* const job = find_job(jobs_, handover.next);
    const JobTurn* const turn = job == nullptr ? nullptr : &turns_.at(job->id);
    const bool is_under_way =
        turn != nullptr && turn->state() == TurnState::kRunning && turn->began() == Time{} &&
        std::ranges::none_of(job->processes,
                             [&](const ProcessLook& look) { return look.began > turn->since(); });
    if (is_under_way) continue;
    if (turn != nullptr && turn->began() != Time{} && handover.stood != Time{})
      gaps_[gpu].add(turn->began() - handover.stood);
    else
      gaps_[gpu].miss();
    handover.last = 0;
  }
}

const JobTurn* Conductor::find(uint64_t job) const {
  const auto turn = turns_.find(job);
  return turn == turns_.end() ? nullptr : &turn->second;
}

uint64_t Conductor::take_turns(uint64_t job) {
  const auto turn = turns_.find(job);
  return turn == turns_.end() ? 0 : turn->second.take_turns();
}

std::vector<ProcessHold> Conductor::holds() const {
  std::vector<ProcessHold> all;
  for (const auto& [id, turn] : turns_) {
    const std::vector<ProcessHold> own = turn.holds();
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all, {}, &ProcessHold::process);
  return all;
}

const Gaps& Conductor::gaps(uint32_t gpu) const {
  static const Gaps kNone;
  const auto found = gaps_.find(gpu);
  return found == gaps_.end() ? kNone : found->second;
}

Time Conductor::next(Time now) const {
  Time next = Time::max();
  std::size_t rivals = 0;
  for (const auto& [id, turn] : turns_) {
    rivals += turn.state() != TurnState::kFree ? 1 : 0;
    next = std::min(next, turn.next(now));
  }
  if (is_gap_due(now)) next = std::min(next, now + kGapLook);
  return rivals > 1 ? next : Time::max();
}

// Who was let in has not been seen to begin an iteration: the next one begins soon, where they are
// short, and then it is not known any more when the first one did.
bool Conductor::is_gap_due(Time now) const {
  return std::ranges::any_of(handovers_, [&](const auto& entry) {
    const JobTurn* const turn = find(entry.second.next);
    return entry.second.last != 0 && turn != nullptr && turn->state() == TurnState::kRunning &&
           now - turn->since() < kGapLooks;
  });
}

}  // namespace gpushare
