// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/policy.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "sched/policy/shim_views.h"
#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

constexpr Nanos kSloRound = std::chrono::seconds(1);

// Returns true if any tenants with a target share a set.
bool do_share(const std::vector<SloTenant>& tenants, const std::vector<SloShare>& shares) {
  std::set<uint32_t> sets;
  for (size_t i = 0; i < shares.size(); ++i)
    if (tenants[i].slo.count() > 0 && !sets.insert(shares[i].set).second) return true;
  return false;
}

}  // namespace

Plan SloPolicy::plan(const Snapshot& snapshot) {
  Plan plan = in_time_.plan(snapshot);
  gpu_name_ = snapshot.gpu.name;
  const Time now = snapshot.now;
  const bool is_other = look(snapshot);
  const bool is_due = now >= next_;
  if (is_due) next_ = now + kSloRound;
  wants_measure_ |= is_due;
  wants_round_ |= is_due || is_other;
  bool must_divide = is_other && drop_the_gone();
  if (wants_round_ && !decider_->is_busy()) begin_round(now);
  if (auto decided = decider_->take()) {
    end_round(now, std::move(*decided));
    must_divide = true;
  }
  must_divide |= look_who_is_behind(now);
  if (must_divide) make_partitions();
  if (decider_->is_busy()) plan.next = std::min(plan.next, now + kLook);
  plan.partitions = partitions_;
  plan.statuses.reserve(tenants_.size());
  for (const auto& [id, known] : tenants_) plan.statuses.push_back(known.status);
  return plan;
}

// Returns true when the tenants, or what holds for them, are not those of the last decision.
bool SloPolicy::look(const Snapshot& snapshot) {
  const auto processes = shim_processes(snapshot);
  ++step_;
  bool is_other = false;
  for (const TenantView& tenant : snapshot.tenants) {
    const auto own = processes.find(tenant.id);
    if (own == processes.end()) continue;
    KnownTenant& known = tenants_[tenant.id];
    known.last_step = step_;
    is_other |= known.look(snapshot.now, tenant, own->second, gpu_name_, knees_);
  }
  const auto gone =
      std::erase_if(tenants_, [&](const auto& entry) { return entry.second.last_step != step_; });
  return is_other || gone > 0;
}

void SloPolicy::begin_round(Time now) {
  is_measured_ = std::exchange(wants_measure_, false);
  wants_round_ = false;
  uint64_t weights = 0;
  for (auto& [id, known] : tenants_) {
    if (is_measured_)
      known.measure(now);
    else
      known.skip_measure();
    weights += std::max(known.weight, 1U);
  }
  if (!is_measured_) search_.stop(now);
  std::vector<SloTenant> sizings;
  std::vector<double> targets;
  for (const auto& [id, known] : tenants_) {
    sizings.push_back(known.sizing(id, geometry_, weights));
    targets.push_back(known.target());
  }
  decider_->begin(std::move(sizings), std::move(targets));
}

void SloPolicy::end_round(Time now, SloDecider::Decided decided) {
  sizings_ = std::move(decided.tenants);
  shares_ = std::move(decided.shares);
  longest_services_ = std::move(decided.longest_services);
  drop_the_gone();
  const bool is_crowded = do_share(sizings_, shares_);
  if (is_crowded) search_.stop(now);
  sample_ = is_measured_ && !is_crowded ? search(now) : std::nullopt;
}

// Who ended while the decision was under way, or before the next one, gives up its part. Returns
// true if anybody did.
bool SloPolicy::drop_the_gone() {
  size_t kept = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (!tenants_.contains(shares_[i].id)) continue;
    sizings_[kept] = sizings_[i];
    shares_[kept] = shares_[i];
    longest_services_[kept++] = longest_services_[i];
  }
  const bool has_dropped = kept < shares_.size();
  sizings_.resize(kept);
  shares_.resize(kept);
  longest_services_.resize(kept);
  return has_dropped;
}

// Returns true when the sets are others than before.
bool SloPolicy::look_who_is_behind(Time now) {
  bool is_other = false;
  for (auto& [id, known] : tenants_) is_other |= known.look_whether_behind(now);
  return is_other;
}

// Divides `spare` groups among the sets in which tenants are behind, by how many of them are. No
// set gets more than each of its members may have, and a tenant that is alone in its set no more
// than help it. A tenant whose program asked for the target itself takes nothing from others.
std::vector<uint32_t> SloPolicy::help(uint32_t spare) const {
  struct Set {
    uint32_t members = 0, heads = 0, most = UINT32_MAX, knee = UINT32_MAX;
  };
  std::map<uint32_t, Set> sets;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const KnownTenant& known = tenants_.at(shares_[i].id);
    const uint32_t groups = groups_of(shares_[i]);
    Set& set = sets[shares_[i].set];
    ++set.members;
    set.heads += known.is_behind && !known.status.is_asked_by_program;
    set.most = std::min(set.most, std::max(sizings_[i].most, groups) - groups);
    set.knee = std::max(sizings_[i].knee.value_or(geometry_.groups), groups) - groups;
  }
  std::erase_if(sets, [](const auto& entry) { return entry.second.heads == 0; });
  std::vector<GroupDemand> demands;
  demands.reserve(sets.size());
  for (const auto& [number, set] : sets)
    demands.push_back({set.members == 1 ? std::min(set.most, set.knee) : set.most, set.heads});
  const std::vector<uint32_t> given = divide_max_min(spare, demands);
  std::vector<uint32_t> more(shares_.size());
  for (size_t i = 0; i < shares_.size(); ++i)
    if (const auto at = sets.find(shares_[i].set); at != sets.end())
      more[i] = given[static_cast<size_t>(std::distance(sets.begin(), at))];
  return more;
}

// Returns the groups with which the tenant is tried in this round, while its knee is sought.
std::optional<uint32_t> SloPolicy::sampled(const SloShare& share) const {
  if (!sample_ || sample_->id != share.id) return std::nullopt;
  return sample_->groups;
}

uint32_t SloPolicy::groups_of(const SloShare& share) const {
  return sampled(share).value_or(share.groups);
}

std::optional<KneeSearch::Sample> SloPolicy::search(Time now) {
  uint32_t taken = 0;
  std::vector<KneeSearch::View> views;
  for (size_t i = 0; i < sizings_.size(); ++i) {
    const KnownTenant& known = tenants_.at(sizings_[i].id);
    if (sizings_[i].slo.count() == 0) {
      ++taken;
      continue;
    }
    taken += shares_[i].groups;
    views.push_back({.id = sizings_[i].id,
                     .is_known = known.knee.has_value(),
                     .is_measured = known.is_measured,
                     .groups = known.meter.groups(),
                     .share = shares_[i].groups,
                     .most = sizings_[i].most,
                     .move = shares_[i].move,
                     .slo = known.target(),
                     .latency = known.measured.latency,
                     .service = known.service(),
                     .longest_service = longest_services_[i]});
  }
  const auto sample =
      search_.step(now, views, geometry_.groups - std::min(taken, geometry_.groups));
  if (const auto found = search_.take_found()) keep(*found);
  return sample;
}

void SloPolicy::keep(const KneeSearch::Found& found) {
  KnownTenant& known = tenants_.at(found.id);
  known.knee = found.knee;
  if (knees_ != nullptr && !known.command.empty())
    knees_->put(known.command, gpu_name_, found.knee);
}

void SloPolicy::make_partitions() {
  partitions_.clear();
  places_.clear();
  uint32_t left = geometry_.groups;
  std::set<uint32_t> counted;
  std::map<uint32_t, Rest> rests;  // by set, of the tenants without a target
  for (size_t i = 0; i < shares_.size(); ++i) {
    const SloShare& share = shares_[i];
    if (sizings_[i].slo.count() > 0) {
      if (counted.insert(share.set).second) left -= std::min(groups_of(share), left);
      continue;
    }
    Rest& rest = rests[share.set];
    rest.weight += sizings_[i].weight;
    rest.most = std::min(rest.most, sizings_[i].most);
  }
  const std::vector<uint32_t> more =
      help(left - std::min(static_cast<uint32_t>(rests.size()), left));
  counted.clear();
  for (size_t i = 0; i < shares_.size(); ++i)
    if (sizings_[i].slo.count() > 0 && counted.insert(shares_[i].set).second) left -= more[i];
  divide_rest(left, rests);
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (sizings_[i].slo.count() > 0)
      serve(i, more[i]);
    else
      leave(i, rests.at(shares_[i].set).groups);
  }
}

void SloPolicy::divide_rest(uint32_t left, std::map<uint32_t, Rest>& rests) {
  std::vector<uint32_t> weights;
  weights.reserve(rests.size());
  for (const auto& [set, rest] : rests) weights.push_back(rest.weight);
  const std::vector<uint32_t> groups = divide_in_proportion(left, weights, 1);
  auto next = groups.begin();
  for (auto& [set, rest] : rests) rest.groups = std::clamp(*next++, 1U, rest.most);
}

// The tenant gets `more` groups than its share, because it is behind.
void SloPolicy::serve(size_t place, uint32_t more) {
  const SloShare& share = shares_[place];
  const SloTenant& sizing = sizings_[place];
  SloStatus& status = tenants_.at(share.id).status;
  PlannedPartition& partition = join(share);
  partition.groups = std::max(groups_of(share) + more, 1U);
  partition.can_borrow |= !sampled(share) && share.move == SloMove::kStarved;
  partition.idle_after = KnownTenant::kLongIdle;
  const uint32_t most = std::min(sizing.most, sizing.knee.value_or(geometry_.groups));
  status.needs = share.demand;
  status.knee = sizing.knee.value_or(0);
  status.state = sampled(share) ? SloState::kSampling
                 : more > 0     ? SloState::kGrows
                                : tenants_.at(share.id).state(share, most);
}

// The tenant has no target, and so gets a part of what the others leave.
void SloPolicy::leave(size_t place, uint32_t groups) {
  const SloShare& share = shares_[place];
  SloStatus& status = tenants_.at(share.id).status;
  PlannedPartition& partition = join(share);
  partition.groups = groups;
  partition.can_borrow = true;
  status.needs = 0;
  status.state = SloState::kRest;
}

// The partitions are in the order of their first tenants.
PlannedPartition& SloPolicy::join(const SloShare& share) {
  const auto [at, is_new] = places_.try_emplace(share.set, partitions_.size());
  if (is_new) partitions_.push_back({.tenants = {}, .can_borrow = false});
  PlannedPartition& partition = partitions_[at->second];
  partition.tenants.push_back(share.id);
  return partition;
}

}  // namespace gpushare
