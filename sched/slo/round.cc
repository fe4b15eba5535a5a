// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/round.h"

#include <algorithm>

#include "sched/policy/shim_views.h"

namespace gpushare {
namespace {

constexpr double kLongest = 3600;  // seconds of one iteration

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void SloRound::add(const IterationsView& before, const IterationsView& now, Nanos length) {
  if (!is_trusted(now) || before.source != now.source) return;
  if (now.ended <= before.ended || now.busy_ns < before.busy_ns ||
      now.latency_ns < before.latency_ns || now.arrivals < before.arrivals)
    return;
  const uint64_t ended = now.ended - before.ended;
  const double rate = static_cast<double>(ended) / (static_cast<double>(length.count()) * 1e-9);
  const double service = seconds(now.busy_ns - before.busy_ns);
  double latency = seconds(now.latency_ns - before.latency_ns);
  if (now.source == ShimSource::kRecognised && service > 0) latency = service;
  const auto count = static_cast<double>(ended);
  if (rate > kMostRate || latency <= 0 || latency > kLongest * count) return;

  sum_.confidence =
      sum_.processes == 0 ? now.confidence : std::min(sum_.confidence, now.confidence);
  sum_.source = sum_.processes == 0 ? now.source : std::min(sum_.source, now.source);
  ++sum_.processes;
  sum_.iterations += ended;
  latency_ += latency;
  service_ += std::min(service, latency);
  launches_ += static_cast<double>(now.launches - std::min(before.launches, now.launches));
  throughput_ += rate;
  is_service_known_ = is_service_known_ && service > 0;
  if (now.p99_ns > 0 && seconds(now.p99_ns) <= kLongest)
    sum_.p99 = std::max(sum_.p99, seconds(now.p99_ns));
}

SloMeasure SloRound::measure() const {
  SloMeasure result = sum_;
  if (result.processes == 0) return result;
  const auto iterations = static_cast<double>(result.iterations);
  result.latency = latency_ / iterations;
  if (is_service_known_) result.service = service_ / iterations;
  result.launches = launches_ / iterations;
  result.throughput = throughput_;
  return result;
}

}  // namespace gpushare
