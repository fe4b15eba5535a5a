// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/replay/ideal.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

// The same bits on every machine.
#pragma STDC FP_CONTRACT OFF

namespace gpushare::replay {

std::vector<Span> first_come(const Jobs& jobs) {
  std::vector<Span> spans;
  Nanos free{};
  for (const Job& job : jobs) {
    const Nanos start = std::max(free, job.submit);
    free = start + job.length;
    spans.push_back({start, free});
  }
  return spans;
}

std::vector<Span> shortest_left(const Jobs& jobs) {
  using Waiting = std::pair<Nanos, size_t>;  // what is left, the job
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  std::vector<Span> spans(jobs.size());
  Nanos now{};
  for (size_t arrived = 0; arrived < jobs.size() || !waiting.empty();) {
    if (waiting.empty()) now = std::max(now, jobs[arrived].submit);
    for (; arrived < jobs.size() && jobs[arrived].submit <= now; ++arrived)
      waiting.emplace(jobs[arrived].length, arrived);
    const auto [left, job] = waiting.top();
    waiting.pop();
    if (left == jobs[job].length) spans[job].start = now;
    const Nanos until =
        arrived < jobs.size() ? std::min(now + left, jobs[arrived].submit) : now + left;
    if (until == now + left)
      spans[job].end = until;
    else
      waiting.emplace(left - (until - now), job);
    now = until;
  }
  return spans;
}

// By the virtual time that every job has been served for: a job ends when it has risen by its
// length.
std::vector<Span> processor_sharing(const Jobs& jobs) {
  using Ending = std::pair<double, size_t>;  // virtual time, the job
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> ending;
  std::vector<Span> spans(jobs.size());
  double now = 0, served = 0;
  for (size_t arrived = 0; arrived < jobs.size() || !ending.empty();) {
    const double arrival = arrived < jobs.size() ? static_cast<double>(jobs[arrived].submit.count())
                                                 : std::numeric_limits<double>::infinity();
    const auto there = static_cast<double>(ending.size());
    const double end = ending.empty() ? std::numeric_limits<double>::infinity()
                                      : now + (ending.top().first - served) * there;
    if (arrival <= end) {
      if (!ending.empty()) served += (arrival - now) / there;
      now = arrival;
      spans[arrived].start = jobs[arrived].submit;
      ending.emplace(served + static_cast<double>(jobs[arrived].length.count()), arrived);
      ++arrived;
    } else {
      served = ending.top().first;
      now = end;
      spans[ending.top().second].end = Nanos(std::llround(now));
      ending.pop();
    }
  }
  return spans;
}

std::vector<Span> least_attained(const Jobs& jobs, Nanos turn, size_t admitted) {
  using Waiting = std::pair<Nanos, size_t>;  // served, the job
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
  std::vector<Span> spans(jobs.size());
  Nanos now{};
  for (size_t let_in = 0; let_in < jobs.size() || !waiting.empty();) {
    if (waiting.empty()) now = std::max(now, jobs[let_in].submit);
    for (; let_in < jobs.size() && jobs[let_in].submit <= now && waiting.size() < admitted;
         ++let_in)
      waiting.emplace(Nanos{}, let_in);
    const auto [served, job] = waiting.top();
    waiting.pop();
    if (served == Nanos{}) spans[job].start = now;
    Nanos length = std::min(turn, jobs[job].length - served);
    if (let_in < jobs.size() && waiting.size() + 1 < admitted)
      length = std::min(length, jobs[let_in].submit - now);
    now += length;
    if (served + length == jobs[job].length)
      spans[job].end = now;
    else
      waiting.emplace(served + length, job);
  }
  return spans;
}

Nanos work_bound(const Jobs& jobs, uint32_t gpus) {
  Nanos now{}, longest{};
  for (const Job& job : jobs) {
    now = std::max(now, job.submit) + job.length / gpus;
    longest = std::max(longest, job.submit + job.length);
  }
  return std::max(now, longest);
}

}  // namespace gpushare::replay
