// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/reading.h"

#include <algorithm>

#include "shmctl/shim/published.h"

namespace gpushare {
namespace {

constexpr uint32_t kTrustedPermille = 750;  // as IterationRecogniser::kTrusted
constexpr uint32_t kLongestSloUs = 1'000'000'000;

}  // namespace

std::optional<SloReading> read_iterations(const ShimIterations& iterations) {
  PublishedIterations said;
  if (!read_published(iterations, &said)) return std::nullopt;
  const bool is_source = said.source <= ShimSource::kAnnounced;
  return SloReading{.source = is_source ? said.source : ShimSource::kNone,
                    .confidence = std::min(said.confidence, 1000U),
                    .ended = said.ended,
                    .busy_ns = said.busy_ns,
                    .latency_ns = said.latency_ns,
                    .arrivals = said.arrivals,
                    .p99_ns = said.p99_ns,
                    .slo_us = said.slo_us > kLongestSloUs ? 0 : said.slo_us};
}

bool is_trusted(const SloReading& reading) {
  return reading.source == ShimSource::kAnnounced ||
         (reading.source == ShimSource::kRecognised && reading.confidence >= kTrustedPermille);
}

}  // namespace gpushare
