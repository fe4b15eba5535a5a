// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/slot_bounds.h"

#include <algorithm>

namespace gpushare {
namespace {

// What the agent reads is up to a step old, and clocks are read one after the other.
constexpr double kSlackSeconds = 0.1, kSlackFactor = 1.1;
// Launches are counted apart from iterations.
constexpr uint64_t kLaunchSlack = 1024;
// How long an iteration may have run, and a request waited, that began before the first reading.
constexpr Nanos kUnseen = std::chrono::minutes(10);
constexpr Nanos kUnseenRecognised = std::chrono::minutes(1);  // on each stream
constexpr Nanos kUnseenQueue = std::chrono::seconds(10);
constexpr double kStreams = 16;          // that the recogniser follows at a time
constexpr double kMostIterations = 1e6;  // a second: a launch alone takes over 1 us

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The most seconds that can have passed since `from`.
double most_since(Time from, Time now) {
  return std::chrono::duration<double>(now - from).count() * kSlackFactor + kSlackSeconds;
}

// Requests that are not answered; below 0 where some ended unannounced.
int64_t open(const IterationsView& said) {
  return static_cast<int64_t>(said.arrivals - said.ended);
}

}  // namespace

// Of a reading that took long the thread stood still: what it says may be of any instant meanwhile,
// so that it is held against the last one, and what comes against the first one.
SlotReading SlotBounds::check(Time now, SlotReading said, Nanos took) {
  if (said.iterations) {
    const IterationsView& now_said = *said.iterations;
    const bool is_same_count =
        last_ && last_->source == now_said.source && now_said.ended >= last_->ended;
    if (!is_same_count) {
      begin(now - took, said);
    } else if (const auto lie = contradiction(now, now_said); !lie.empty()) {
      reason_ = lie;
      trusted_from_ = now + kDistrust;
      begin(now - took, said);
    } else if (now_said.source == ShimSource::kRecognised &&
               now_said.ended - first_->ended > said.launches - launches_ + kLaunchSlack) {
      reason_ = "it says that it iterates and launches nothing";
      trusted_from_ = now + kDistrust;
      begin(now - took, said);
    }
    note(now - took, now_said);
  }
  if (now < trusted_from_)
    said.iterations.reset();
  else
    reason_ = {};
  return said;
}

void SlotBounds::begin(Time now, const SlotReading& said) {
  launches_ = said.launches;
  first_ = last_ = said.iterations;
  begin_ = end_ = now;
  no_begun_ = no_open_ = now - kUnseen;
  least_open_ = open(*said.iterations);
}

// Those that are recognised follow one another on each of some streams. Those that are announced
// may run side by side: each of them began after the last instant at which none was under way.
std::string_view SlotBounds::contradiction(Time now, const IterationsView& said) const {
  constexpr std::string_view kTooLong =
      "it says that its iterations took longer than the time that has passed";
  const auto ended = static_cast<double>(said.ended - last_->ended);
  if (said.busy_ns < last_->busy_ns || said.latency_ns < last_->latency_ns)
    return "its sums of time fell";
  if (ended == 0) return {};
  if (ended > kMostIterations * most_since(end_, now))
    return "it says that it iterates faster than a GPU can launch";
  if (said.source == ShimSource::kRecognised) {
    const double sum =
        seconds(std::max(said.busy_ns - first_->busy_ns, said.latency_ns - first_->latency_ns));
    return sum > kStreams * most_since(begin_ - kUnseenRecognised, now) ? kTooLong
                                                                        : std::string_view();
  }
  const double busy = seconds(said.busy_ns - last_->busy_ns);
  const double latency = seconds(said.latency_ns - last_->latency_ns);
  if (busy > ended * most_since(no_begun_, now)) return kTooLong;
  const Time from =
      said.arrivals > 0 ? std::min({no_open_, no_begun_, now - kUnseenQueue}) : no_begun_;
  return latency > ended * most_since(from, now) ? kTooLong : std::string_view();
}

void SlotBounds::note(Time now, const IterationsView& said) {
  if (said.ended != last_->ended) end_ = now;
  const bool is_idle = said.begun <= said.ended;
  if (is_idle) no_begun_ = now;
  if (is_idle && open(said) <= least_open_) no_open_ = now;
  least_open_ = std::min(least_open_, open(said));
  last_ = said;
}

}  // namespace gpushare
