// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/token_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sched/policy/shim_views.h"

namespace gpushare {
namespace {

constexpr double kLongest = 3600;  // seconds of one iteration that are believed
// A recognised iteration that took longer than so many times its work waited for requests in
// between: what is counted is then its work, as it is of an announced one, which may have waited in
// a queue before it began.
constexpr double kBreak = 2;

bool is_other_count(const IterationsView& before, const IterationsView& now) {
  return now.source != before.source || now.ended < before.ended || now.busy_ns < before.busy_ns ||
         now.latency_ns < before.latency_ns;
}

}  // namespace

void TokenTimes::look(uint32_t groups, std::span<const ProcessView* const> processes) {
  if (std::ranges::any_of(processes, &ProcessView::lends)) groups = groups_;
  const bool is_moved = groups != groups_;
  if (is_moved) {
    epoch_sum_ = 0;
    epoch_count_ = 0;
  }
  groups_ = groups;
  source_ = ShimSource::kNone;
  confidence_ = 0;
  period_ = asked_ = Nanos{};
  forget_others(processes_, processes);
  for (const ProcessView* const process : processes) {
    const std::optional<IterationsView>& said = process->iterations;
    if (!said) continue;
    if (said->slo_us != 0 && (asked_ == Nanos{} || Micros(said->slo_us) < asked_))
      asked_ = Micros(said->slo_us);
    const auto [at, is_new] = processes_.try_emplace(process->process, Known{.last = *said});
    Known& known = at->second;
    if (!is_trusted(*said)) {
      known = {.last = *said};
      continue;
    }
    source_ = std::max(source_, said->source);
    confidence_ = std::max(confidence_, said->confidence);
    const auto longest = static_cast<uint64_t>(Nanos(std::chrono::hours(1)).count());
    period_ = std::max(period_, Nanos(static_cast<int64_t>(std::min(said->period_ns, longest))));
    if (is_moved || is_other_count(known.last, *said)) {
      known.was_moved = true;
    } else if (said->ended > known.last.ended) {
      if (!known.was_moved) note(known.last, *said);
      known.was_moved = false;
    }
    known.last = *said;
  }
}

void TokenTimes::note(const IterationsView& before, const IterationsView& now) {
  const uint64_t ended = now.ended - before.ended;
  const auto seconds = [&](uint64_t sum) {
    return static_cast<double>(sum) * 1e-9 / static_cast<double>(ended);
  };
  const double busy = seconds(now.busy_ns - before.busy_ns);
  const double latency = seconds(now.latency_ns - before.latency_ns);
  if (latency <= 0 || latency > kLongest || busy > kLongest) return;
  response_ = response_ < 0 ? latency : response_ + (latency - response_) * kFollow;
  const bool is_busy =
      busy > 0 && (now.source == ShimSource::kAnnounced || latency > kBreak * busy);
  const double time = is_busy ? busy : latency;
  if (groups_ == 0 || groups_ > ServiceCurve::kMostGroups) return;
  const uint64_t count = std::min(ended, kMostAtOnce);
  epoch_sum_ += time * static_cast<double>(count);
  epoch_count_ += static_cast<uint32_t>(count);
  if (epoch_count_ >= kEpoch) {
    curve_.observe(groups_, epoch_sum_ / epoch_count_);
    epoch_sum_ = 0;
    epoch_count_ = 0;
  }
  if (groups_ != kept_) return;
  for (uint64_t i = 0; i < count; ++i) {
    times_[next_] = time;
    next_ = (next_ + 1) % kKept;
    count_ = std::min(count_ + 1, kKept);
  }
}

void TokenTimes::keep(uint32_t groups) {
  if (groups == kept_) return;
  kept_ = groups;
  forget();
}

double TokenTimes::quantile(double part) const {
  if (count_ < kFewest) return -1;
  std::array<double, kKept> sorted{};
  for (std::size_t i = 0; i < count_; ++i) sorted[i] = times_[(next_ + kKept - 1 - i) % kKept];
  const auto rank = std::lround(part * static_cast<double>(count_ - 1));
  const auto middle = sorted.begin() + rank;
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count_));
  return *middle;
}

double TokenTimes::mean() const {
  if (count_ < kFewest) return -1;
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) sum += times_[(next_ + kKept - 1 - i) % kKept];
  return sum / static_cast<double>(count_);
}

}  // namespace gpushare
