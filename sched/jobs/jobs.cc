// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/jobs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "sched/policy/command_signature.h"

namespace gpushare {
namespace {

// The last of the ranks of a job is behind the first by no more than this part of their iterations.
constexpr uint64_t kRankBehind = 10;
// Of fewer iterations what the job has worked says little; those before so many or so much work say
// nothing of those that come.
constexpr uint64_t kFewest = 8, kMany = 64;
constexpr Nanos kLong = std::chrono::seconds(2);

Nanos bounded(uint64_t period_ns) {
  constexpr auto kMost = static_cast<uint64_t>(Jobs::kLongestPeriod.count());
  return Nanos(static_cast<int64_t>(std::min(period_ns, kMost)));
}

// What a step says anew.
void forget_step(Job& job) {
  job.gpus = job.memory_bytes = job.expected = 0;
  job.period = job.longest = job.target = Nanos{};
  job.has_boundary = true;
  job.phase = ShimPhase::kUnknown;
  job.processes.clear();
}

}  // namespace

bool teaches(const Job& ended) {
  return ended.is_whole && ended.status.value_or(0) == 0 &&
         worked_on_each(ended) >= Jobs::kLeastLesson;
}

Nanos service_on_each(const Job& job) {
  return job.service / static_cast<int64_t>(std::max(job.most_gpus, 1U));
}

Nanos start_on_each(const Job& job) {
  const Nanos had =
      job.start.value_or(job.service) / static_cast<int64_t>(std::max(job.most_gpus, 1U));
  return std::clamp(had, Nanos{}, Jobs::kLongestStart);
}

Nanos worked_on_each(const Job& job) {
  return std::max(service_on_each(job) - start_on_each(job), Nanos{});
}

Nanos work_of_iteration(const Job& job) {
  const uint64_t seen = job.iterations - std::min(job.older.iterations, job.iterations);
  const Nanos worked = worked_on_each(job) - job.older.worked;
  if (seen < kFewest || worked <= Nanos{}) return job.period;
  return worked / static_cast<int64_t>(seen);
}

Nanos work_promised(const Job& job) {
  return std::max(job.kept_word.value_or(Nanos{}) - job.announced, Nanos{});
}

Nanos work_beyond(const Job& job) {
  return job.kept_word ? std::max(worked_on_each(job) - *job.kept_word, Nanos{}) : Nanos{};
}

Nanos work_since_end(const Job& job) {
  return std::max(worked_on_each(job) - job.last_end, Nanos{});
}

void Jobs::remember(std::span<const FormerJob> former) {
  for (const FormerJob& one : former) {
    const Key key = one.run != 0 ? Key{.run = one.run} : Key{.process = one.process};
    const auto [at, is_new] = former_.try_emplace(key, one);
    if (is_new) continue;
    // Of several processes of a run one may have been noted last when it left a GPU.
    at->second.arrived = std::min(at->second.arrived, one.arrived);
    at->second.service = std::max(at->second.service, one.service);
  }
}

void Jobs::begin() {
  by_process_.clear();
  for (auto& [key, known] : known_) known.is_present = false;
}

void Jobs::add(const JobProcess& seen) {
  const Key key = seen.run != 0 ? Key{.run = seen.run} : Key{.process = seen.process};
  Known& known = known_[key];
  Job& job = known.job;
  if (job.id == 0) {
    job.id = next_id_++;
    job.name = seen.run != 0 ? "run-" + std::to_string(seen.run)
                             : "pid-" + std::to_string(seen.process.pid);
    job.arrived = seen.came;
    if (const auto former = former_.find(key); former != former_.end()) {
      job.arrived = former->second.arrived;
      job.service = former->second.service;
      job.start = Nanos{};
      job.is_whole = false;
      former_.erase(former);
    }
  }
  if (job.command_line.empty()) {  // it may not have been read in time
    job.command_line = seen.command_line.substr(0, kMostLine);
    job.signature = command_signature(seen.command_line, seen.user);
    job.user = seen.user;
  }
  if (!std::exchange(known.is_present, true)) {
    forget_step(job);
    job.tenant = seen.tenant;
  }
  job.is_whole = job.is_whole && !seen.is_late;
  job.gpus |= uint64_t{1} << seen.gpu;
  job.service += seen.used;
  job.memory_bytes += seen.memory_bytes;
  by_process_[seen.process] = job.id;
  if (const auto at = std::ranges::lower_bound(job.processes, seen.process);
      at == job.processes.end() || *at != seen.process)
    job.processes.insert(at, seen.process);
  if (!seen.iterations || seen.iterations->source == ShimSource::kNone) {
    job.has_boundary = false;
    return;
  }
  const IterationsView& said = *seen.iterations;
  known.said[seen.process] = said.ended;
  job.period = std::max(job.period, bounded(said.period_ns));
  job.longest = std::max(job.longest, bounded(said.p99_ns));
  job.expected = std::max(job.expected, said.expected);
  job.target = std::max(job.target, Nanos(std::chrono::microseconds(said.slo_us)));
  if (said.phase != ShimPhase::kUnknown) job.phase = said.phase;
}

// Ranks count the same iterations, some of them a few later; processes that come one after the
// other add up. One that says nothing in this step has what it said last.
void Jobs::count_iterations(Known& known) {
  std::erase_if(known.said, [&](const auto& entry) {
    return !std::ranges::binary_search(known.job.processes, entry.first);
  });
  if (known.said.empty()) return;
  uint64_t most = 0;
  for (const auto& [process, said] : known.said) most = std::max(most, said);
  if (most < known.most - known.most / kRankBehind) {
    known.ended_before += known.most;
    known.most = most;
  }
  known.most = std::max(known.most, most);
  Job& job = known.job;
  const uint64_t before = std::exchange(job.iterations, known.ended_before + known.most);
  const Job::Mark now{.iterations = job.iterations, .worked = worked_on_each(job)};
  if (!std::exchange(known.has_said, true)) job.older = job.newer = now;
  if (job.iterations != before) job.last_end = now.worked;
  const uint64_t ended = job.iterations - job.newer.iterations;
  if (ended >= kMany || (ended >= kFewest && now.worked - job.newer.worked >= kLong))
    job.older = std::exchange(job.newer, now);
}

// The fewest iterations that it has announced are believed, and that they take as long as they do.
void Jobs::believe(Job& job) {
  if (job.expected == 0) return;
  const Nanos worked = worked_on_each(job);
  if (job.fewest_expected == 0) job.announced = worked;
  if (job.fewest_expected == 0 || job.expected < job.fewest_expected)
    job.fewest_expected = job.expected;
  if (job.iterations < job.fewest_expected)
    job.kept_word.reset();
  else if (!job.kept_word)
    job.kept_word = worked;
}

bool Jobs::is_over(const Key& key, const Known& known, Time now, const HasRun& has_run) {
  const Nanos gone = now - known.last_seen;
  if (gone < kRememberedEnded) return false;
  if (gone >= kRemembered) return true;
  return key.run != 0 ? !has_run(key.run) : known.has_ended;
}

void Jobs::end(Time now, const HasRun& has_run) {
  if (!last_end_ || now - *last_end_ >= kPause)
    for (auto& [key, known] : known_) known.job.is_whole = false;
  last_end_ = now;
  if (!former_until_) former_until_ = now + kFormer;
  if (now >= *former_until_) former_.clear();
  std::erase_if(former_,
                [&](const auto& one) { return one.first.run != 0 && !has_run(one.first.run); });
  present_.clear();
  for (auto at = known_.begin(); at != known_.end();) {
    Known& known = at->second;
    if (known.is_present) {
      known.last_seen = now;
      known.job.most_gpus =
          std::max(known.job.most_gpus, static_cast<uint32_t>(std::popcount(known.job.gpus)));
      count_iterations(known);
      believe(known.job);
      present_.push_back(known.job);
    } else if (is_over(at->first, known, now, has_run)) {
      ended_.push_back(std::move(known.job));
      at = known_.erase(at);
      continue;
    }
    ++at;
  }
  std::ranges::sort(present_, {}, &Job::id);
}

void Jobs::note_end(const ProcessId& process, std::optional<int> status) {
  const uint64_t job = job_of(process);
  if (job == 0) return;
  for (auto& [key, known] : known_) {
    if (known.job.id != job) continue;
    known.job.status = status;
    known.has_ended = known.has_ended || key.process == process;
  }
}

void Jobs::end_start(uint64_t job, Nanos worked) {
  for (auto& [key, known] : known_)
    if (known.job.id == job && !known.job.start)
      known.job.start = std::max(known.job.service - worked, Nanos{});
}

void Jobs::add_late(uint64_t job, Nanos used) {
  for (auto& [key, known] : known_)
    if (known.job.id == job) known.job.service += used;
}

uint64_t Jobs::job_of(const ProcessId& process) const {
  const auto found = by_process_.find(process);
  return found == by_process_.end() ? 0 : found->second;
}

std::vector<Job> Jobs::take_ended() { return std::exchange(ended_, {}); }

}  // namespace gpushare
