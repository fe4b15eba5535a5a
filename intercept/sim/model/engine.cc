// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/model/engine.h"

#include <algorithm>
#include <bit>
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

// How much is asked of each group of SMs, as a multiple of what it has.
class Load {
 public:
  explicit Load(const std::vector<Job*>& jobs) {
    for (const Job* job : jobs) {
      if (job->groups == 0) everywhere_ += job->weight;
      for (uint64_t left = job->groups; left != 0; left &= left - 1) {
        const int group = std::countr_zero(left);
        const double size = job->set / std::popcount(job->groups);
        named_ += size_[group] == 0 ? size : 0;
        size_[group] = size_[group] == 0 ? size : size_[group];
        own_[group] += job->weight / job->set;
      }
    }
  }
  // The mean over the SMs that it may use; at most 1.
  double speed(const Job& job) const {
    if (job.groups == 0 && named_ == 0) return part(0);
    double sum = 0, size = 0;
    for (int group = 0; group < kGroups; ++group) {
      const bool is_its = job.groups == 0 || (job.groups >> group & 1) != 0;
      if (!is_its || size_[group] == 0) continue;
      sum += size_[group] * part(own_[group]);
      size += size_[group];
    }
    if (job.groups == 0 && named_ < 1) {
      sum += (1 - named_) * part(0);
      size += 1 - named_;
    }
    return size > 0 ? sum / size : 1;
  }

 private:
  static constexpr int kGroups = 64;
  double part(double own) const { return 1 / std::max(1.0, everywhere_ + own); }

  double everywhere_ = 0;  // asked of all groups alike
  double own_[kGroups] = {};
  double size_[kGroups] = {};  // parts of the engine; 0: no job names the group
  double named_ = 0;           // the sum of that
};

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

std::vector<double> EngineModel::speeds(const std::vector<Job*>& jobs) const {
  bool has_neighbours = false;
  const Load load(jobs);
  for (const Job* job : jobs) has_neighbours |= job->member != jobs.front()->member;
  std::vector<double> speeds;
  speeds.reserve(jobs.size());
  for (const Job* job : jobs)
    speeds.push_back((has_neighbours ? mps_.speed : 1.0) * load.speed(*job));
  return speeds;
}

Time EngineModel::next() const {
  Time first = runlist_.next();
  const EntryId entry = runlist_.progressing();
  if (entry == 0) return first;
  const auto running = active(settled_);
  const auto rates = speeds(running);
  for (std::size_t i = 0; i < running.size(); ++i)
    if (!running[i]->spins())
      first = std::min(first, after(settled_, running[i]->left_ns / rates[i]));
  for (const Job* job : jobs_.at(entry))
    if (job->admitted > settled_) first = std::min(first, job->admitted);
  return first;
}

void EngineModel::settle(Time now) {
  const auto running = active(settled_);
  const double passed = static_cast<double>((now - settled_).count());
  if (passed > 0) {
    const auto rates = speeds(running);
    if (!running.empty()) busy_ += now - settled_;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Job* const job = running[i];
      const double done = passed * rates[i];
      if (!job->has_started) job->started = settled_;
      job->has_started = true;
      if (job->spins()) continue;
      job->left_ns -= done;
      job->executed_ns += done;
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
  const auto rates = speeds(running);
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
        const auto at = std::ranges::find(running, job) - running.begin();
        bound =
            std::min(bound, after(settled_, job->left_ns / rates[static_cast<std::size_t>(at)]));
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

Nanos EngineModel::busy(Time now) {
  settle(now);
  return busy_;
}

}  // namespace gpushare::sim
