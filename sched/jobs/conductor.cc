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

// How many jobs of this GPU run at a time.
std::size_t room(const Conductor::GpuOrder& order) {
  return static_cast<std::size_t>(std::ranges::count_if(order.jobs, &JobDecision::runs));
}

}  // namespace

void Conductor::set_order(GpuOrder order) {
  const auto at = std::ranges::lower_bound(orders_, order.gpu, {}, &GpuOrder::gpu);
  if (at != orders_.end() && at->gpu == order.gpu)
    *at = std::move(order);
  else
    orders_.insert(at, std::move(order));
}

void Conductor::drop_order(uint32_t gpu) {
  std::erase_if(orders_, [&](const GpuOrder& order) { return order.gpu == gpu; });
}

std::vector<uint64_t> Conductor::choose(std::span<const GpuOrder> orders, std::span<const Job> jobs,
                                        const std::map<uint64_t, JobTurn>& turns) {
  const auto wants = [&](uint64_t id) {
    const auto turn = turns.find(id);
    return turn != turns.end() && turn->second.wants_gpu();
  };
  std::vector<std::pair<std::size_t, const GpuOrder*>> by_rivals;
  uint64_t ordered = 0;  // GPUs that have an order
  std::map<uint32_t, std::size_t> left;
  for (const GpuOrder& order : orders) {
    const auto rivals = static_cast<std::size_t>(std::ranges::count_if(
        order.jobs, [&](const JobDecision& decision) { return wants(decision.job); }));
    by_rivals.emplace_back(rivals, &order);
    ordered |= uint64_t{1} << order.gpu;
    left[order.gpu] = room(order);
  }
  std::ranges::sort(by_rivals, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->gpu < b.second->gpu;
  });
  std::vector<uint64_t> chosen;
  const auto take = [&](const GpuOrder& order, const auto& may_run) {
    for (const JobDecision& decision : order.jobs) {
      if (left[order.gpu] == 0) return;
      const Job* const job = find_job(jobs, decision.job);
      if (job == nullptr || !may_run(decision) ||
          std::ranges::find(chosen, job->id) != chosen.end())
        continue;
      const auto each_of = [&](const auto& deed) {
        for (auto& [gpu, places] : left)
          if ((job->gpus & ordered & uint64_t{1} << gpu) != 0 && !deed(places)) return false;
        return true;
      };
      if (!each_of([](std::size_t places) { return places > 0; })) continue;
      each_of([](std::size_t& places) { return places-- > 0; });
      chosen.push_back(job->id);
    }
  };
  for (const auto& [rivals, order] : by_rivals)
    take(*order, [&](const JobDecision& decision) { return wants(decision.job); });
  for (const auto& [rivals, order] : by_rivals)
    take(*order, [](const JobDecision& decision) { return decision.runs; });
  std::ranges::sort(chosen);
  return chosen;
}

// Of a job on several GPUs the longest that a plan gives it.
Nanos Conductor::grace_of(uint64_t job) const {
  Nanos grace{};
  for (const GpuOrder& order : orders_)
    for (const JobDecision& decision : order.jobs)
      if (decision.job == job) grace = std::max(grace, decision.grace);
  return grace;
}

bool Conductor::is_named(uint64_t job) const {
  return std::ranges::any_of(orders_, [&](const GpuOrder& order) {
    return std::ranges::find(order.jobs, job, &JobDecision::job) != order.jobs.end();
  });
}

// REQUIRES: the job was chosen, so that there is room for it once those have gone that were not.
bool Conductor::may_enter(const Job& job, Time now) const {
  const JobTurn& own = turns_.at(job.id);
  const bool begins_by_launch = own.state() == TurnState::kHeld && own.rung() != Rung::kNone;
  return std::ranges::all_of(orders_, [&](const GpuOrder& order) {
    const uint64_t bit = uint64_t{1} << order.gpu;
    if ((job.gpus & bit) == 0) return true;
    const auto others = std::ranges::count_if(jobs_, [&](const Job& other) {
      const JobTurn& turn = turns_.at(other.id);
      return other.id != job.id && (other.gpus & bit) != 0 && turn.occupies() &&
             !(begins_by_launch && turn.is_about_to_stand(now));
    });
    return static_cast<std::size_t>(others) < std::max<std::size_t>(room(order), 1);
  });
}

void Conductor::look(Time now, std::vector<Job> jobs) {
  jobs_ = std::move(jobs);
  std::erase_if(turns_, [&](const auto& turn) { return find_job(jobs_, turn.first) == nullptr; });
  for (const Job& job : jobs_) turns_[job.id].look(now, job.processes);
  note_gaps();
}

bool Conductor::decide(Time now) {
  const std::vector<uint64_t> chosen = choose(orders_, jobs_, turns_);
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
  return std::ranges::all_of(orders_, [&](const GpuOrder& order) {
    if ((job.gpus & uint64_t{1} << order.gpu) == 0) return true;
    const auto handover = handovers_.find(order.gpu);
    return handover != handovers_.end() && handover->second.next == job.id;
  });
}

void Conductor::let_in(const Job& job, JobTurn& turn, Time now) {
  // One that stood before a launch goes on in the middle of an iteration.
  const bool waited = turn.wants_gpu() && turn.rung() == Rung::kBoundary;
  const Time since = turn.since();
  turn.run(now);
  for (const GpuOrder& order : orders_) {
    if ((job.gpus & uint64_t{1} << order.gpu) == 0) continue;
    Handover& handover = handovers_[order.gpu];
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
  return rivals > 1 ? next : Time::max();
}

}  // namespace gpushare
