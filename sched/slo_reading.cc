// SPDX-License-Identifier: Apache-2.0
#include "sched/slo_reading.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr int kLooks = 16;
constexpr uint32_t kTrustedPermille = 750;  // as IterationRecogniser::kTrusted
constexpr uint32_t kLongestSloUs = 1'000'000'000;

SloReading copy_of(const ShimIterations& from) {
  constexpr auto kAcquire = std::memory_order_acquire;
  return {.source = from.source.load(kAcquire),
          .confidence = from.confidence.load(kAcquire),
          .ended = from.ended.load(kAcquire),
          .busy_ns = from.busy_ns.load(kAcquire),
          .latency_ns = from.latency_ns.load(kAcquire),
          .arrivals = from.arrivals.load(kAcquire),
          .p99_ns = from.p99_ns.load(kAcquire),
          .slo_us = from.slo_us.load(kAcquire)};
}

}  // namespace

std::optional<SloReading> read_iterations(const ShimIterations& iterations) {
  for (int look = 0; look < kLooks; ++look) {
    // Pairs with the writer's release of an even number. The loads of the copy are acquires to stay
    // before the second look.
    const uint32_t before = iterations.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    SloReading reading = copy_of(iterations);
    if (iterations.sequence.load(std::memory_order_relaxed) != before) continue;
    if (reading.source > ShimSource::kAnnounced) reading.source = ShimSource::kNone;
    reading.confidence = std::min(reading.confidence, 1000U);
    if (reading.slo_us > kLongestSloUs) reading.slo_us = 0;
    return reading;
  }
  return std::nullopt;
}

bool is_trusted(const SloReading& reading) {
  return reading.source == ShimSource::kAnnounced ||
         (reading.source == ShimSource::kRecognised && reading.confidence >= kTrustedPermille);
}

}  // namespace gpushare
