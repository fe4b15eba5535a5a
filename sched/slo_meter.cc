// SPDX-License-Identifier: Apache-2.0
#include "sched/slo_meter.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr double kMostRate = 1e6;  // requests a second; a launch alone takes more than 1 us

// Counted in another way, or by another process that was given the slot.
bool is_other_count(const SloReading& before, const SloReading& now) {
  return now.source != before.source || now.ended < before.ended;
}

}  // namespace

void SloMeter::look(Time now, const SmClaimant& claimant) {
  const auto& processes = claimant.processes;
  const bool is_moved = claimant.groups != groups_ || claimant.sharers != sharers_;
  groups_ = claimant.groups;
  sharers_ = claimant.sharers;
  std::erase_if(processes_, [&](const auto& entry) {
    return std::ranges::find(processes, entry.first, &SmClaimant::Process::id) == processes.end();
  });
  command_line_ = {};
  uint64_t most = 0;
  for (const SmClaimant::Process& process : processes) {
    const auto [at, is_new] = processes_.try_emplace(process.id);
    Process& known = at->second;
    auto reading = read_iterations(process.slot->iterations);
    if (reading) reading->launches = launches_of(*process.slot);
    bool is_other = is_new || is_moved;
    if (reading) {
      if (is_new || reading->arrivals < known.last.arrivals)
        known.arrivals = ArrivalRate(now, reading->arrivals);
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
    if (command_line_.empty() || known.last.ended > most) command_line_ = process.command_line;
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

double SloMeter::arrivals(Time now) {
  double sum = processes_.empty() ? -1 : 0;
  for (auto& [id, process] : processes_) {
    if (process.last.arrivals == 0) return -1;
    sum += process.arrivals.look(now, process.last.arrivals);
  }
  return std::min(sum, kMostRate);
}

uint64_t SloMeter::backlog() const {
  uint64_t sum = 0;
  for (const auto& [id, process] : processes_)
    sum += process.last.arrivals - std::min(process.last.ended, process.last.arrivals);
  return sum;
}

Nanos SloMeter::asked() const {
  uint32_t least = 0;
  for (const auto& [id, process] : processes_)
    if (const uint32_t us = process.last.slo_us; us != 0)
      least = least == 0 ? us : std::min(least, us);
  return Micros(least);
}

}  // namespace gpushare
