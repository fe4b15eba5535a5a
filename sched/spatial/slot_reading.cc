// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/slot_reading.h"

#include <algorithm>

#include "shmctl/shim/published.h"

namespace gpushare {
namespace {

constexpr uint32_t kLongestSloUs = 1'000'000'000;

std::optional<Time> instant(uint64_t ns) {
  if (ns == 0 || ns > static_cast<uint64_t>(Nanos::max().count())) return std::nullopt;
  return Time{Nanos(static_cast<int64_t>(ns))};
}

}  // namespace

SlotReading read_slot(const ShimSlot& slot) {
  SlotReading reading{
      .shows_work = (slot.head.features & (kShimGate | kShimPartitions | kShimIterations)) != 0,
      .launches = launches_of(slot),
      .waits = slot.waits.load(std::memory_order_relaxed),
      .is_at_gate = slot.waiting.load(std::memory_order_relaxed) != 0,
      .at_boundary = instant(slot.iterations.waiting_since_ns.load(std::memory_order_relaxed)),
      .iterations = {}};
  // Pairs with the release in say_done(): the launches that it counted are seen.
  const uint64_t done_at = slot.done_at.load(std::memory_order_acquire);
  reading.is_done = done_at != 0 && done_at == launches_of(slot);
  PublishedIterations said;
  if (!read_published(slot.iterations, &said)) return reading;
  const bool is_source = said.source <= ShimSource::kAnnounced;
  const bool is_phase = said.phase <= ShimPhase::kDecode;
  reading.is_read = true;
  reading.begun = said.begun;
  reading.began = instant(said.began_ns).value_or(Time{});
  reading.iterations = {.source = is_source ? said.source : ShimSource::kNone,
                        .confidence = std::min(said.confidence, 1000U),
                        .phase = is_phase ? said.phase : ShimPhase::kUnknown,
                        .begun = said.begun,
                        .ended = said.ended,
                        .began = reading.began,
                        .busy_ns = said.busy_ns,
                        .latency_ns = said.latency_ns,
                        .arrivals = said.arrivals,
                        .launches = reading.launches,
                        .period_ns = said.period_ns,
                        .p99_ns = said.p99_ns,
                        .slo_us = said.slo_us > kLongestSloUs ? 0 : said.slo_us,
                        .expected = said.expected,
                        .waits_since = reading.at_boundary};
  return reading;
}

TimeHistogram read_times(const ShimSlot& slot) {
  TimeHistogram times{.sum_us = slot.times.sum_us.load(std::memory_order_relaxed)};
  for (std::size_t i = 0; i < kTimeClasses; ++i)
    times.counts[i] = slot.times.counts[i].load(std::memory_order_relaxed);
  return times;
}

}  // namespace gpushare
