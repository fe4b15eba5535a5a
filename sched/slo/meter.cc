// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/meter.h"

#include <algorithm>

#include "sched/policy/shim_views.h"

namespace gpushare {
namespace {

// Returns true when the counts are of another source, or of another process that was given the
// slot.
bool is_other_count(const IterationsView& before, const IterationsView& now) {
  return now.source != before.source || now.ended < before.ended;
}

}  // namespace

void SloMeter::look(Time now, uint32_t groups, uint32_t sharers,
                    std::span<const ProcessView* const> processes) {
  const bool is_moved = groups != groups_ || sharers != sharers_;
  groups_ = groups;
  sharers_ = sharers;
  forget_others(processes_, processes);
  command_line_ = {};
  uint64_t most = 0;
  for (const ProcessView* const process : processes) {
    const auto [at, is_new] = processes_.try_emplace(process->process);
    Process& known = at->second;
    const std::optional<IterationsView>& reading = process->iterations;
    bool is_other = is_new || is_moved;
    if (reading) {
      count_open(now, *reading, known);
      is_other = is_other || is_other_count(known.last, *reading);
      if (reading->ended != known.last.ended) last_end_ = now;
      known.last = *reading;
    }
    if (is_other) {
      known.waits_for = known.last.ended;
      known.is_measured = false;
    } else if (reading && !known.is_measured && reading->ended > known.waits_for) {
      known.first = *reading;
      known.since = now;
      known.is_measured = true;
    }
    if (command_line_.empty() || known.last.ended > most) command_line_ = process->command_line;
    most = std::max(most, known.last.ended);
  }
}

SloMeasure SloMeter::take(Time now, uint64_t least) {
  SloRound round;
  Time begin = now;
  for (const auto& [id, process] : processes_) {
    if (!process.is_measured || process.since >= now || groups_ == 0) continue;
    round.add(process.first, process.last, now - process.since);
    begin = std::min(begin, process.since);
  }
  const SloMeasure measure = round.measure();
  if (measure.iterations < least && now - begin < kPatience) return {};
  for (auto& [id, process] : processes_) {
    process.first = process.last;
    process.since = now;
  }
  return measure;
}

// When a program begins to announce its iterations, only those that end from then on count.
void SloMeter::count_open(Time now, const IterationsView& reading, Process& process) {
  const bool is_begin = !process.arrivals || is_other_count(process.last, reading) ||
                        reading.arrivals < process.last.arrivals;
  process.open = static_cast<int64_t>(reading.arrivals - reading.ended);
  if (is_begin) {
    process.arrivals.emplace(now, reading.arrivals);
    process.least_now = process.least_before = process.open;
    process.span_since = now;
  } else if (now - process.span_since >= kSpan) {
    process.least_before = process.least_now;
    process.least_now = process.open;
    process.span_since = now;
  }
  process.least_now = std::min(process.least_now, process.open);
}

double SloMeter::arrivals(Time now) {
  double sum = 0, squares = 0;
  for (auto& [id, process] : processes_) {
    if (process.last.arrivals == 0 && process.last.ended > 0) return -1;
    const double rate = process.arrivals ? process.arrivals->look(now, process.last.arrivals) : -1;
    if (rate <= 0) continue;
    const double counted = std::min(rate, kMostRate);
    sum += counted;
    squares += counted * counted;
  }
  return sum > 0 ? squares / sum : -1;
}

uint64_t SloMeter::backlog() const {
  int64_t longest = 0;
  for (const auto& [id, process] : processes_)
    if (process.last.arrivals > 0)
      longest = std::max(longest, process.open - std::min(process.least_now, process.least_before));
  return static_cast<uint64_t>(longest);
}

Nanos SloMeter::asked() const {
  uint32_t least = 0;
  for (const auto& [id, process] : processes_)
    if (const uint32_t us = process.last.slo_us; us != 0)
      least = least == 0 ? us : std::min(least, us);
  return Micros(least);
}

}  // namespace gpushare
