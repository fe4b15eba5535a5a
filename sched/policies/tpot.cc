// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/tpot.h"

#include <algorithm>

#include "sched/policy/shim_views.h"
#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

// While anybody decodes or prefills it wants to be called again after this.
constexpr Nanos kTokenRound = std::chrono::milliseconds(2);
// That groups which change hands are nobody's, until a prompt has back what it gave.
constexpr Nanos kMoves = std::chrono::milliseconds(20);
// Fewer groups are tried when so many steps have taken no more than this part of the target.
constexpr double kAmple = 0.7;
constexpr double kVote = 1.0 / 32;  // of one iteration, on what a tenant's phase is
constexpr double kRelax = 1.1;      // by which a size's share of the target rises again

double seconds(Nanos time) { return static_cast<double>(time.count()) * 1e-9; }

}  // namespace

Plan TpotPolicy::plan(const Snapshot& snapshot) {
  Plan plan = in_time_.plan(snapshot);
  plan.partitions.clear();
  look(snapshot);
  look_what_is_owed(snapshot.now);
  look_for_even(snapshot.now);
  divide();
  bool is_any_active = false;
  // Those that give way first come last: where there are fewer groups than tenants, they get none.
  for (const ShimPhase phase : {ShimPhase::kDecode, ShimPhase::kPrefill, ShimPhase::kUnknown}) {
    for (const auto& [id, known] : tenants_) {
      if (known.phase != phase) continue;
      PlannedPartition& partition = plan.partitions.emplace_back();
      partition.tenants = {id};
      partition.groups = std::max(known.planned, 1U);
      plan.statuses.push_back(status(id, known));
      if (phase == ShimPhase::kUnknown) continue;
      partition.is_returned_at_once = true;
      // Who is in the middle of something does not lend, though it may launch nothing for long.
      partition.idle_after = known.is_active ? Nanos::max() : kLendAfter;
      is_any_active |= known.is_active;
    }
  }
  hold(snapshot, plan);
  if (is_any_active) plan.next = std::min(plan.next, snapshot.now + kTokenRound);
  return plan;
}

void TpotPolicy::look(const Snapshot& snapshot) {
  const auto processes = shim_processes(snapshot);
  ++step_;
  for (const TenantView& tenant : snapshot.tenants) {
    const auto own = processes.find(tenant.id);
    if (own == processes.end()) continue;
    Known& known = tenants_[tenant.id];
    known.last_step = step_;
    look_at(known, snapshot.now, tenant, own->second);
  }
  std::erase_if(tenants_, [&](const auto& entry) { return entry.second.last_step != step_; });
}

void TpotPolicy::look_at(Known& known, Time now, const TenantView& view,
                         std::span<const ProcessView* const> processes) {
  known.weight = static_cast<uint32_t>(std::max(view.weight, 1.0));
  known.most = view.sm_percent ? groups_of_percent(*view.sm_percent, geometry_) : geometry_.groups;
  known.times.look(view.groups, processes);
  known.prompts.look(now, processes);
  known.target = view.slo > Nanos{} ? view.slo : known.times.asked();
  known.last_launch = {};
  uint64_t begun = 0;
  bool is_in_one = false;  // an iteration that will end by itself
  ShimPhase shown = ShimPhase::kUnknown;
  for (const ProcessView* const process : processes) {
    known.last_launch = std::max(known.last_launch, process->last_launch);
    if (process->phase != ShimPhase::kUnknown) shown = std::max(shown, process->phase);
    if (!process->iterations) continue;
    begun += process->iterations->begun;
    is_in_one |= process->iterations->source == ShimSource::kAnnounced &&
                 process->iterations->begun > process->iterations->ended;
  }
  // A program that does both is what it does more often.
  if (view.phase != TenantPhase::kAuto) {
    known.phase = shown;
  } else if (begun != known.begun && shown != ShimPhase::kUnknown) {
    const bool is_decode = shown == ShimPhase::kDecode;
    known.shown_decode += ((is_decode ? 1 : 0) - known.shown_decode) * kVote;
    known.shown_prefill += ((is_decode ? 0 : 1) - known.shown_prefill) * kVote;
    if (known.shown_decode > 0.5) known.phase = ShimPhase::kDecode;
    if (known.shown_prefill > 0.5) known.phase = ShimPhase::kPrefill;
  }
  known.begun = begun;
  count_rate(known, now);
  const bool is_decode = known.phase == ShimPhase::kDecode;
  const Nanos quiet = is_decode ? std::max(kLendAfter, 2 * known.times.period()) : kLendAfter;
  known.is_active = is_in_one || known.prompts.oldest().has_value() ||
                    (known.last_launch != Time{} && now - known.last_launch < quiet);
}

void TpotPolicy::count_rate(Known& known, Time now) {
  constexpr Nanos kSpan = std::chrono::seconds(1);
  const bool is_other = known.begun < known.counted_from || known.counted_since == Time{};
  if (!is_other && now - known.counted_since < kSpan) return;
  if (!is_other)
    known.rate =
        static_cast<double>(known.begun - known.counted_from) / seconds(now - known.counted_since);
  known.counted_from = known.begun;
  known.counted_since = now;
}

// How much less prompts have had since some wait than half of the GPU, and what is lost while
// groups change hands. Nothing is owed to those that are answered.
void TpotPolicy::look_what_is_owed(Time now) {
  const double passed = std::min(seconds(now - last_), 0.1);
  last_ = now;
  uint32_t given = 0;
  bool do_any_wait = false;
  for (const auto& [id, known] : tenants_) {
    if (known.phase != ShimPhase::kPrefill) continue;
    given += known.planned;
    do_any_wait |= known.prompts.oldest().has_value();
  }
  owed_ = do_any_wait ? std::max(owed_ + passed * (even() - static_cast<double>(given)), 0.0)
                      : even() * seconds(kMoves);
}

// Whether a prompt has waited for so long, or will have, that it no longer gives way to tokens.
void TpotPolicy::look_for_even(Time now) {
  bool is_even = false;
  for (const auto& [id, known] : tenants_) {
    if (known.phase != ShimPhase::kPrefill || !known.prompts.oldest()) continue;
    const double target = seconds(known.target > Nanos{} ? known.target : kPromptTarget);
    const double part = target * (is_even_ ? kEvenTo : kEvenFrom);
    const double waited = seconds(now - *known.prompts.oldest());
    // How long the last one will have waited, if prompts get equal parts from now on.
    double queue = 0;
    if (known.times.curve().is_known())
      queue = static_cast<double>(known.prompts.count()) * known.times.curve().seconds(even());
    is_even |= waited >= part || queue >= part;
  }
  is_even_ = is_even;
}

std::vector<TpotPolicy::Known*> TpotPolicy::of(ShimPhase phase, bool only_active) {
  std::vector<Known*> all;
  for (auto& [id, known] : tenants_)
    if (known.phase == phase && (known.is_active || !only_active)) all.push_back(&known);
  return all;
}

// The fewest groups on which a step takes at most so long; most + 1: there are none.
uint32_t TpotPolicy::fewest(const Known& known, double seconds, uint32_t most) {
  for (uint32_t groups = 1; groups <= most; ++groups)
    if (known.times.curve().seconds(groups) <= seconds) return groups;
  return most + 1;
}

// How many groups its steps need, of at most `most`; 0: not known.
void TpotPolicy::size(Known& known, uint32_t most) const {
  const double target = seconds(known.target);
  const ServiceCurve& curve = known.times.curve();
  known.is_late = false;
  if (target <= 0 || !curve.is_known()) {
    known.groups = 0;
    known.state = target <= 0 ? SloState::kRest : SloState::kUnmeasured;
    return;
  }
  known.state = SloState::kMeets;
  if (known.groups == 0) known.groups = fewest(known, target * kAim, most);
  known.groups = std::min(known.groups, most);
  const uint32_t at = known.given == 0 ? known.groups : known.given;
  known.times.keep(at);
  const double p95 = known.times.quantile(0.95);
  if (p95 < 0 || is_even_) return;
  if (p95 > target * kLate) {
    known.is_late = at >= most || at < known.groups;
    known.state = known.is_late ? SloState::kAtMost : SloState::kGrows;
    known.allowed = std::min(known.allowed, curve.seconds(at) * kLate / p95);
    known.groups = std::min(std::max(fewest(known, target * known.allowed, most), at + 1), most);
    if (!known.is_late) known.times.keep(known.groups);
  } else if (p95 <= target * kAmple && known.times.count() == TokenTimes::kKept) {
    known.allowed = std::min(known.allowed * kRelax, kAim);
    known.times.forget();
    const uint32_t fewer = fewest(known, target * known.allowed, most);
    if (fewer < known.groups) known.state = SloState::kShrinks;
    known.groups = std::min(known.groups, fewer);
  }
}

void TpotPolicy::divide_by_weight(uint32_t groups, std::span<Known* const> among) {
  std::vector<uint32_t> weights;
  weights.reserve(among.size());
  for (const Known* const known : among) weights.push_back(known->weight);
  const std::vector<uint32_t> parts = divide_in_proportion(groups, weights, 1);
  for (size_t i = 0; i < among.size(); ++i)
    among[i]->planned = std::min(std::max(parts[i], 1U), among[i]->most);
}

// Everybody has one group at least, so that its next launch can begin.
void TpotPolicy::divide() {
  const std::vector<Known*> decoders = of(ShimPhase::kDecode, /*only_active=*/true);
  const std::vector<Known*> prefills = of(ShimPhase::kPrefill), others = of(ShimPhase::kUnknown);
  const auto count = [](const auto& tenants) { return static_cast<uint32_t>(tenants.size()); };
  const uint32_t all =
      geometry_.groups -
      std::min(geometry_.groups - 1, count(tenants_) - count(decoders) - count(prefills));
  const uint32_t left = all - std::min(all, count(prefills));
  const uint32_t most = left - std::min(left, std::max(count(decoders), 1U) - 1);
  std::vector<GroupDemand> demands;
  bool is_late = false, is_in_time = true;
  for (Known* const known : decoders) {
    size(*known, std::clamp(most, 1U, known->most));
    const double p95 = known->times.quantile(0.95);
    is_late |= known->is_late;
    is_in_time &= p95 >= 0 && p95 < seconds(known->target) * kInTime;
    const uint32_t wanted = std::min(known->groups == 0 ? even() : known->groups, known->most);
    const uint32_t in_return = std::max(even() / 2 / count(decoders), 1U);
    demands.push_back({is_even_ && owed_ > 0 ? std::min(wanted, in_return) : wanted});
  }
  is_held_ = std::ranges::any_of(prefills, &Known::is_active) && !is_even_ && !decoders.empty() &&
             (is_late || (is_held_ && !is_in_time));
  if (is_even_)
    for (const Known* const known : prefills) demands.push_back({known->most});
  const std::vector<uint32_t> parts = divide_max_min(is_even_ ? all : left, demands);
  for (auto& [id, known] : tenants_) known.planned = 1;
  uint32_t spare = left;
  for (size_t i = 0; i < parts.size(); ++i) {
    Known& known = i < decoders.size() ? *decoders[i] : *prefills[i - decoders.size()];
    known.planned = std::max(parts[i], 1U);
    spare -= std::min(spare, parts[i]);
  }
  if (!is_even_ && !prefills.empty())
    divide_by_weight(spare + count(prefills), prefills);
  else if (prefills.empty() && !others.empty())
    divide_by_weight(spare + count(others), others);
  for (auto& [id, known] : tenants_) known.given = 0;
  for (Known* const known : decoders) known->given = known->planned;
  for (Known* const known : prefills)
    known->state = is_even_ ? SloState::kEven : is_held_ ? SloState::kHeld : SloState::kYields;
  for (Known* const known : others) known->state = SloState::kRest;
}

// Prompts that are being read are read to their end; the next ones wait.
void TpotPolicy::hold(const Snapshot& snapshot, Plan& plan) const {
  if (!is_held_) return;
  for (const ProcessView& process : snapshot.processes) {
    const auto tenant = tenants_.find(process.tenant);
    if (tenant == tenants_.end() || tenant->second.phase != ShimPhase::kPrefill) continue;
    if (!process.has_shim || !process.can_plan() || !process.iterations) continue;
    if (process.iterations->source == ShimSource::kNone) continue;
    const uint64_t until = std::max<uint64_t>(process.iterations->begun, 1);
    const auto decision = std::ranges::find(plan.decisions, process.id, &Decision::process);
    if (decision != plan.decisions.end())
      decision->run_until = until;
    else
      plan.decisions.push_back({.process = process.id, .run_until = until});
  }
}

SloStatus TpotPolicy::status(uint32_t id, const Known& known) {
  SloStatus status{.tenant = id, .slo = known.target};
  status.latency = known.times.response();
  if (known.phase == ShimPhase::kDecode && known.times.mean() >= 0)
    status.latency = known.times.mean();
  if (known.times.source() != ShimSource::kNone) status.throughput = known.rate;
  if (known.phase == ShimPhase::kDecode) status.p99 = known.times.quantile(0.99);
  status.source = known.times.source();
  status.confidence = known.times.confidence();
  status.needs = known.phase == ShimPhase::kDecode ? known.groups : 0;
  status.state = known.state;
  status.phase = known.phase;
  return status;
}

}  // namespace gpushare
