// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/replay/gpu.h"

#include <algorithm>
#include <utility>

#include "sched/orders/left.h"

namespace gpushare::replay {
namespace {

// A policy that wants to be asked again at once is asked so much later.
constexpr Nanos kShortestWait = std::chrono::microseconds(1);

}  // namespace

Gpu::Gpu(uint32_t index, std::unique_ptr<Policy> policy, const Costs& costs, Told told,
         LengthHistory& lengths)
    : view_{.index = index, .name = "replay"},
      policy_(std::move(policy)),
      costs_(costs),
      told_(told),
      lengths_(lengths) {}

void Gpu::add(uint64_t id, const Job& job, Time now, Outcome& outcome) {
  outcome.gpu = view_.index;
  views_.push_back({.id = id,
                    .name = job.name,
                    .arrived = now,
                    .period = job.iteration(),
                    .longest = job.iteration(),
                    .wants_gpu = true,
                    .is_at_boundary = true,
                    .since = now,
                    .gpus = uint64_t{1} << view_.index,
                    .command_line = job.model});
  jobs_.push_back({.job = &job, .outcome = &outcome});
  know_left(views_.size() - 1);
  decide(now);
}

Time Gpu::end_of_turn() const {
  return turn_->from + (jobs_[turn_->place].job->length - turn_->done);
}

Time Gpu::next() const {
  if (!turn_) return look_;
  Time next = std::min(look_, end_of_turn());
  if (turn_->stop) next = std::min(next, *turn_->stop);
  return next;
}

void Gpu::advance(Time now) {
  account(now);
  if (turn_ && now >= end_of_turn())
    end(now);
  else if (turn_ && turn_->stop && now >= *turn_->stop)
    stop(now);
  else if (now < look_)
    return;
  decide(now);
}

void Gpu::account(Time now) {
  if (!turn_ || now <= turn_->from) return;
  Running& running = jobs_[turn_->place];
  JobView& view = views_[turn_->place];
  running.done = turn_->done + (now - turn_->from);
  view.service = running.done;
  view.iterations =
      std::min<uint64_t>(running.done / running.job->iteration(), running.job->iterations - 1);
  know_left(turn_->place);
}

void Gpu::know_left(size_t place) {
  const Job& job = *jobs_[place].job;
  JobView& view = views_[place];
  if (told_ == Told::kNothing) return;
  KnownLength known{.service = view.service};
  if (told_ == Told::kLength)
    known.length = job.length;
  else
    known.learnt = lengths_.median(job.model);
  const Left left = left_of(known);
  view.left = left.time;
  view.left_source = left.source;
}

void Gpu::decide(Time now) {
  ++decisions_;
  const Plan plan = policy_->plan({.now = now, .gpu = view_, .jobs = views_});
  look_ = plan.next == Time::max() ? plan.next : std::max(plan.next, now + kShortestWait);
  const auto chosen = std::ranges::find(plan.jobs, true, &JobDecision::runs);
  if (chosen == plan.jobs.end()) return;
  const auto at = std::ranges::lower_bound(views_, chosen->job, {}, &JobView::id);
  const auto place = static_cast<size_t>(at - views_.begin());
  if (!turn_) return begin(place, now);
  if (turn_->place == place) {
    turn_->stop.reset();
    return;
  }
  const uint64_t id = views_[turn_->place].id;
  const auto held = std::ranges::find(plan.jobs, id, &JobDecision::job);
  if (!turn_->stop) ask_to_stop(now, held->grace);
  if (*turn_->stop > now) return;
  stop(now);
  begin(place, now);
}

// At the end of the iteration, or after the grace.
void Gpu::ask_to_stop(Time now, Nanos grace) {
  const Running& running = jobs_[turn_->place];
  const Nanos into = running.done % running.job->iteration();
  const Time boundary =
      std::max(now, turn_->from) + (into == Nanos{} ? into : running.job->iteration() - into);
  turn_->is_in_mid_kernel = boundary > now + grace;
  turn_->stop = turn_->is_in_mid_kernel ? now + grace : boundary;
}

void Gpu::begin(size_t place, Time now) {
  Running& running = jobs_[place];
  JobView& view = views_[place];
  Nanos cost = std::exchange(owed_, Nanos{});
  if (last_ != 0 && last_ != view.id) {
    cost += costs_.gap;
    ++switches_;
  }
  if (std::exchange(running.is_frozen, false)) cost += costs_.thaw;
  lost_ += cost;
  last_ = view.id;
  turn_ = Turn{.place = place, .from = now + cost, .done = running.done};
  if (!running.outcome->started) running.outcome->started = turn_->from;
  view.runs = true;
  view.is_at_boundary = false;
  view.since = turn_->from;
}

void Gpu::stop(Time now) {
  Running& running = jobs_[turn_->place];
  JobView& view = views_[turn_->place];
  used_ += running.done - turn_->done;
  view.runs = false;
  view.is_at_boundary = true;
  view.since = now;
  if (turn_->is_in_mid_kernel && running.done % running.job->iteration() != Nanos{}) {
    running.is_frozen = true;
    owed_ = costs_.freeze;
    ++stops_;
  }
  turn_.reset();
}

void Gpu::end(Time now) {
  const Running running = jobs_[turn_->place];
  used_ += running.job->length - turn_->done;
  running.outcome->ended = now;
  lengths_.add(running.job->model, running.job->length);
  views_.erase(views_.begin() + static_cast<ptrdiff_t>(turn_->place));
  jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(turn_->place));
  turn_.reset();
}

}  // namespace gpushare::replay
