// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/model/engine.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

namespace gpushare::sim {
namespace {

// Progress is kept in floating point; a job with less than this left is finished.
constexpr double kNothingLeft = 1e-3;

// now + ns, rounded up; Time::max() when that is no number or too large.
Time after(Time now, double ns) {
  if (ns > 9e17) return Time::max();
  return now + Nanos(static_cast<int64_t>(std::ceil(std::max(ns, 0.0))));
}

}  // namespace

void EngineModel::add_entry(EntryId entry, Nanos slice) {
  runlist_.add(entry, slice);
  jobs_[entry];
}

void EngineModel::remove_entry(EntryId entry, Time now) {
  settle(now);
  assert(jobs_.at(entry).empty());
  runlist_.remove(entry, now);
  jobs_.erase(entry);
}

void EngineModel::set_slice(EntryId entry, Nanos slice, Time now) {
  settle(now);
  runlist_.set_slice(entry, slice, now);
}

void EngineModel::start(EntryId entry, Job& job, Time now) {
  settle(now);
  auto& jobs = jobs_.at(entry);
  const bool has_neighbour =
      std::ranges::any_of(jobs, [&](const Job* other) { return other->member != job.member; });
  if (!job.has_started && job.is_from_idle && has_neighbour) job.admitted = now + mps_.launch;
  jobs.push_back(&job);
  set_runnable(entry, now);
}

void EngineModel::withdraw(EntryId entry, Job& job, Time now) {
  settle(now);
  auto& jobs = jobs_.at(entry);
  std::erase(jobs, &job);
  if (jobs.empty()) set_runnable(entry, now);
}

void EngineModel::hold(EntryId entry, Time now) {
  settle(now);
  ++holds_[entry];
  set_runnable(entry, now);
}

void EngineModel::release(EntryId entry, Time now) {
  settle(now);
  if (--holds_.at(entry) == 0) holds_.erase(entry);
  set_runnable(entry, now);
}

void EngineModel::set_runnable(EntryId entry, Time now) {
  runlist_.set_runnable(entry, !jobs_.at(entry).empty() && !holds_.contains(entry), now);
}

void EngineModel::end_soon(Job& job, Time now) {
  settle(now);
  job.left_ns = 0;
}

std::vector<Job*> EngineModel::active(Time now) const {
  const EntryId entry = runlist_.progressing();
  if (entry == 0) return {};
  std::vector<Job*> jobs = jobs_.at(entry);
  std::erase_if(jobs, [&](const Job* job) { return job->admitted > now; });
  return jobs;
}

double EngineModel::speed(const std::vector<Job*>& jobs) const {
  double weight = 0;
  bool has_neighbours = false;
  for (const Job* job : jobs) {
    weight += job->weight;
    has_neighbours |= job->member != jobs.front()->member;
  }
  return (has_neighbours ? mps_.speed : 1.0) / std::max(1.0, weight);
}

Time EngineModel::next() const {
  Time first = runlist_.next();
  const EntryId entry = runlist_.progressing();
  if (entry == 0) return first;
  const auto running = active(settled_);
  const double rate = speed(running);
  for (const Job* job : running)
    if (!job->spins()) first = std::min(first, after(settled_, job->left_ns / rate));
  for (const Job* job : jobs_.at(entry))
    if (job->admitted > settled_) first = std::min(first, job->admitted);
  return first;
}

void EngineModel::settle(Time now) {
  const auto running = active(settled_);
  const double passed = static_cast<double>((now - settled_).count());
  if (passed > 0) {
    const double done = passed * speed(running);
    std::vector<uint32_t> counted;
    for (Job* job : running) {
      if (!job->has_started) job->started = settled_;
      job->has_started = true;
      if (!job->spins()) {
        job->left_ns -= done;
        job->executed_ns += done;
      }
      if (std::ranges::find(counted, job->member) != counted.end()) continue;
      counted.push_back(job->member);
      busy_[job->member] += now - settled_;
    }
  }
  settled_ = now;
}

void EngineModel::take_finished(Time now, std::vector<Job*>& finished) {
  settle(now);
  const EntryId entry = runlist_.progressing();
  if (entry == 0) return;
  auto& jobs = jobs_.at(entry);
  const auto is_over = [](const Job* job) { return job->left_ns <= kNothingLeft && !job->spins(); };
  std::ranges::copy_if(jobs, std::back_inserter(finished), is_over);
  std::erase_if(jobs, is_over);
}

void EngineModel::take_turns(Time now) {
  settle(now);
  // This comes before the end of the turn: a context that has just become idle has no state to
  // save.
  if (const EntryId entry = runlist_.progressing(); entry != 0 && jobs_.at(entry).empty())
    runlist_.set_runnable(entry, false, now);
  runlist_.advance(now);
}

Time EngineModel::quiet_until() const {
  const EntryId progressing = runlist_.progressing();
  const auto running = active(settled_);
  const double rate = speed(running);
  const Time next_turn = runlist_.next();
  Time bound = Time::max();
  for (const auto& [entry, jobs] : jobs_) {
    for (const Job* job : jobs) {
      if (job->spins()) continue;
      if (entry != progressing) {
        bound = std::min(bound, std::max(next_turn, after(settled_, job->left_ns)));
      } else if (job->admitted > settled_) {
        bound = std::min(bound, after(job->admitted, job->left_ns));
      } else {
        bound = std::min(bound, after(settled_, job->left_ns / rate));
      }
    }
  }
  return bound;
}

bool EngineModel::is_active(EntryId entry, const Job& job, Time now) const {
  if (runlist_.progressing() != entry || job.admitted > now) return false;
  return std::ranges::find(jobs_.at(entry), &job) != jobs_.at(entry).end();
}

double EngineModel::executed(const Job& job, Time now) {
  settle(now);
  return job.executed_ns;
}

Nanos EngineModel::busy(uint32_t member, Time now) {
  settle(now);
  const auto found = busy_.find(member);
  return found == busy_.end() ? Nanos{} : found->second;
}

}  // namespace gpushare::sim
