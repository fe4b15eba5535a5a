// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sched/orders/times.h"

namespace gpushare {
namespace {

constexpr Nanos kShortestGrace = 20ms, kLongestGrace = 1s;

Nanos grace_for(const JobView& job, Nanos set) {
  if (set > Nanos{}) return set;
  return 2 * std::clamp(job.period, kShortestGrace / 2, kLongestGrace / 2);
}

}  // namespace

OrderPolicy::OrderPolicy(const PolicyOptions& options)
    : turn_(std::chrono::milliseconds(options["turn_ms"])),
      grace_(std::chrono::milliseconds(options["grace_ms"])),
      patience_(std::chrono::seconds(options["patience_s"])) {}

Plan OrderPolicy::plan(const Snapshot& snapshot) {
  Plan plan;
  caps_.decide(snapshot, plan);
  collect(snapshot, plan);
  if (ranked_.empty()) {
    chosen_ = 0;
    return plan;
  }
  const Ranked& chosen = choose(snapshot.now, plan);
  plan.next = std::min(plan.next, look_again(*chosen.job, snapshot.now));
  tell(snapshot.now, chosen, plan);
  return plan;
}

// Fills ranked_, in the order in which jobs get their turns.
void OrderPolicy::collect(const Snapshot& snapshot, Plan& plan) {
  ranked_.clear();
  Priority highest = Priority::kIdle;
  for (const JobView& job : snapshot.jobs) {
    const bool is_ready = job.wants_gpu && caps_.may_run(job.id);
    ranked_.push_back({.job = &job, .is_ready = is_ready});
    if (is_ready) highest = std::max(highest, job.priority);
  }
  rank(ranked_, snapshot.now);
  if (patience_ > Nanos{}) {
    for (Ranked& one : ranked_) {
      if (!one.is_ready || one.job->runs) continue;
      one.is_patient = elapsed(one.job->since, snapshot.now) < patience_;
      if (one.is_patient && one.job->priority == highest)
        plan.next = std::min(plan.next, later(one.job->since, patience_));
    }
  }
  std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) {
    const auto order = [](const Ranked& one) {
      return std::tuple(!one.is_ready, -static_cast<int64_t>(one.job->priority), one.is_patient,
                        one.is_patient ? one.key : 0, one.job->arrived, one.job->id);
    };
    return order(a) < order(b);
  });
}

// Who has the turn from now on.
const OrderPolicy::Ranked& OrderPolicy::choose(Time now, Plan& plan) {
  const Ranked& first = ranked_.front();
  const auto running =
      std::ranges::find(ranked_, chosen_, [](const Ranked& one) { return one.job->id; });
  if (running != ranked_.end() && &*running != &first) {
    if (!first.is_ready) return *running;
    const bool is_equal = running->is_ready && running->job->priority == first.job->priority;
    if (is_equal && is_patience_turn_ &&
        (!running->job->runs || elapsed(running->job->since, now) < turn_)) {
      if (running->job->runs) plan.next = std::min(plan.next, later(running->job->since, turn_));
      return *running;
    }
    if (is_equal && first.is_patient && keeps(*running, first, now)) return *running;
  }
  if (first.job->id != chosen_) is_patience_turn_ = !first.is_patient;
  chosen_ = first.job->id;
  return first;
}

void OrderPolicy::tell(Time now, const Ranked& chosen, Plan& plan) const {
  const JobView& job = *chosen.job;
  std::string why = fmt::format("turn of {}", job.name);
  if (job.left) why += fmt::format(", {} left", rough_text(*job.left));
  plan.jobs.reserve(ranked_.size());
  plan.jobs.push_back({.job = job.id,
                       .runs = true,
                       .until = job.left ? later(now, *job.left) : Time::max(),
                       .grace = grace_for(job, grace_),
                       .turn = turn_});
  for (const Ranked& one : ranked_) {
    if (&one == &chosen) continue;
    plan.jobs.push_back({.job = one.job->id,
                         .grace = grace_for(*one.job, grace_),
                         .turn = turn_,
                         .reason = one.is_ready ? why : "has no work"});
  }
}

}  // namespace gpushare
