// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/known_tenant.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sched/policy/command_signature.h"

namespace gpushare {
namespace {

constexpr Nanos kBehind = std::chrono::milliseconds(50);  // its queue is too long for so long
constexpr double kLongQueue = 3;           // requests; two that came together are no queue
constexpr double kBatch = 1.5;             // requests that arrive for one iteration
constexpr int kBatches = 3;                // rounds
constexpr uint64_t kRoundsFewest = 8;      // iterations that make a round
constexpr double kKneesDifference = 0.25;  // from which on its work is not that of the knee

double service_of(const SloMeasure& measure) {
  return measure.service > 0 ? measure.service : measure.latency;
}

}  // namespace

double KnownTenant::service() const { return service_of(measured); }

double KnownTenant::target() const { return static_cast<double>(status.slo.count()) * 1e-9; }

bool KnownTenant::look(Time now, const TenantView& view,
                       std::span<const ProcessView* const> processes, std::string_view gpu_name,
                       KneeStore* knees) {
  meter.look(now, view.groups, view.sharers, processes);
  has_own_partition_ = view.sharers == 1;
  const Nanos asked = meter.asked();
  status.tenant = view.id;
  status.slo = view.slo.count() > 0 ? view.slo : asked;
  status.is_asked_by_program = view.slo.count() == 0 && asked.count() > 0;
  // A program may ask for a target at any time, so what it asks for can wait for the next round.
  const auto its_weight = static_cast<uint32_t>(std::max(view.weight, 1.0));
  const bool is_other =
      std::tie(weight, sm_percent_, own_target_) != std::tie(its_weight, view.sm_percent, view.slo);
  for (const ProcessView* const process : processes)
    if (process->phase != ShimPhase::kUnknown) status.phase = process->phase;
  weight = its_weight;
  sm_percent_ = view.sm_percent;
  own_target_ = view.slo;
  recall_knee(gpu_name, knees);
  return is_other;
}

// Another command in the tenant has another knee, which an earlier run may have found.
void KnownTenant::recall_knee(std::string_view gpu_name, KneeStore* knees) {
  const std::string_view command_line = meter.command_line();
  if (command_line.empty() || command_line == command_line_) return;
  command_line_ = command_line;
  command = command_signature(std::string_view(command_line_));
  knee = knees == nullptr ? std::nullopt : knees->find(command, gpu_name);
  reference_groups_ = 0;
}

void KnownTenant::measure(Time now) {
  arrivals_ = meter.arrivals(now);
  const SloMeasure measure = meter.take(now, kRoundsFewest);
  is_measured = measure.processes > 0 && meter.groups() > 0;
  if (!is_measured) {
    if (now - meter.last_end() >= kLongIdle && status.throughput > 0) status.throughput = 0;
    return;
  }
  status.latency = measure.latency;
  status.p99 = measure.p99;
  status.throughput = measure.throughput;
  status.source = measure.source;
  status.confidence = measure.confidence;
  measured = measure;
  const double ended = measure.throughput / static_cast<double>(measure.processes);
  if (arrivals_ <= ended * kBatch) {
    batches_ = 0;
  } else if (measure.latency <= target()) {
    ++batches_;
  }
  if (!has_own_partition_) {  // iterations take longer because of the others
    reference_groups_ = 0;
    return;
  }
  if (reference_groups_ == meter.groups()) {
    const double off = service() / reference_;
    if (off > 1 + kKneesDifference || off < 1 / (1 + kKneesDifference)) knee.reset();
  }
  reference_groups_ = meter.groups();
  reference_ = service();
}

bool KnownTenant::look_whether_behind(Time now) {
  const auto backlog = static_cast<double>(meter.backlog());
  // A tenant that is behind stays so until its queue is short.
  const double longest = target() * (is_behind ? 1 : 2);
  const bool is_long =
      longest > 0 && batches_ < kBatches && backlog >= kLongQueue && backlog * service() > longest;
  if (!is_long) {
    behind_since_.reset();
  } else if (!behind_since_) {
    behind_since_ = now;
  }
  const bool was_behind =
      std::exchange(is_behind, is_long && (is_behind || now - *behind_since_ >= kBehind));
  return is_behind != was_behind;
}

SloTenant KnownTenant::sizing(uint32_t id, const SmGeometry& geometry, uint64_t weights) const {
  const uint32_t own_weight = std::max(weight, 1U);
  const auto fair = static_cast<uint32_t>(
      std::max<uint64_t>(uint64_t{geometry.groups} * own_weight / weights, 1));
  SloTenant tenant;
  tenant.id = id;
  tenant.slo = status.slo;
  tenant.weight = own_weight;
  tenant.groups = meter.groups();
  tenant.knee = cap(geometry);
  tenant.most = sm_percent_ ? groups_of_percent(*sm_percent_, geometry) : geometry.groups;
  tenant.first = fair;
  if (status.is_asked_by_program) tenant.most = std::min(tenant.most, fair);
  tenant.can_share = !status.is_asked_by_program;
  // Several processes share the tenant's groups and its requests: each is a queue of its own.
  if (batches_ < kBatches) tenant.arrivals = arrivals_;
  if (!is_measured) return tenant;
  tenant.iterations = static_cast<uint32_t>(std::min<uint64_t>(measured.iterations, UINT32_MAX));
  tenant.latency = measured.latency;
  tenant.service = measured.service;
  tenant.throughput = measured.throughput / static_cast<double>(measured.processes);
  if (batches_ >= kBatches) tenant.arrivals = tenant.throughput;
  tenant.launches = measured.launches;
  return tenant;
}

// A search that could not begin with all groups, and found that the tenant needs all that it had,
// does not say whether more would help.
std::optional<uint32_t> KnownTenant::cap(const SmGeometry& geometry) const {
  if (!knee || (knee->knee == knee->widest && knee->widest < geometry.groups)) return std::nullopt;
  return knee->knee;
}

SloState KnownTenant::state(const SloShare& share, uint32_t most) const {
  if (status.latency < 0) return SloState::kUnmeasured;
  switch (share.move) {
    case SloMove::kStarved:
      return SloState::kStarved;
    case SloMove::kGrow:
      return SloState::kGrows;
    case SloMove::kShrink:
      return SloState::kShrinks;
    case SloMove::kHold:
      break;
  }
  const bool is_missed = status.latency > target();
  if (is_missed && !has_own_partition_) return SloState::kStarved;
  return is_missed && share.groups >= most ? SloState::kAtMost : SloState::kMeets;
}

}  // namespace gpushare
