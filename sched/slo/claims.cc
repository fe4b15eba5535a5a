// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/claims.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "sched/spatial/group_division.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

double seconds(Nanos time) { return static_cast<double>(time.count()) * 1e-9; }

double service_of(const SloMeasure& measure) {
  return measure.service > 0 ? measure.service : measure.latency;
}

std::vector<std::string> words_of(const std::string& command_line) {
  std::istringstream text(command_line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(std::move(word));
  return words;
}

// Do any tenants with a target share a set?
bool do_share(const std::vector<SloTenant>& tenants, const std::vector<SloShare>& shares) {
  std::set<uint32_t> sets;
  for (size_t i = 0; i < shares.size(); ++i)
    if (tenants[i].slo.count() > 0 && !sets.insert(shares[i].set).second) return true;
  return false;
}

}  // namespace

std::vector<SmClaim> SloClaims::decide(Time now, const std::vector<SmClaimant>& claimants) {
  const bool is_other = take_in(now, claimants);
  if (const bool is_due = now >= next_; is_due || is_other) {
    if (is_due) next_ = now + kRound;
    round(now, is_due);
    look_who_is_behind(now);
    make_claims();
  } else if (look_who_is_behind(now)) {
    make_claims();
  }
  std::vector<SmClaim> claims;
  claims.reserve(claimants.size());
  for (const SmClaimant& claimant : claimants) claims.push_back(tenants_[claimant.tenant].claim);
  return claims;
}

// True: who there is, or what holds for them, is not what the last decision was made for.
bool SloClaims::take_in(Time now, const std::vector<SmClaimant>& claimants) {
  ++step_;
  bool is_other = false;
  for (const SmClaimant& claimant : claimants) {
    const auto [at, is_new] = tenants_.try_emplace(claimant.tenant);
    Known& known = at->second;
    known.last_step = step_;
    known.meter.look(now, claimant);
    known.has_own_set = claimant.sharers == 1;
    const Nanos own = claimant.settings.slo, asked = known.meter.asked();
    const Nanos slo = own.count() > 0 ? own : asked;
    // What a program asks for can wait for the next round: it may ask at any time.
    is_other = is_other || is_new || claimant.settings != known.settings;
    known.settings = claimant.settings;
    known.status.slo = slo;
    known.status.is_asked_by_program = own.count() == 0 && asked.count() > 0;
    recall_knee(known);
  }
  const auto gone =
      std::erase_if(tenants_, [&](const auto& entry) { return entry.second.last_step != step_; });
  return is_other || gone > 0;
}

// Another command in the tenant has another knee; perhaps one that an earlier run has found.
void SloClaims::recall_knee(Known& known) {
  const std::string_view command_line = known.meter.command_line();
  if (command_line.empty() || command_line == known.command_line) return;
  known.command_line = command_line;
  const auto words = words_of(known.command_line);
  known.command = command_signature(words);
  known.knee = knees_ == nullptr ? std::nullopt : knees_->find(known.command, gpu_name_);
  known.reference_groups = 0;
}

void SloClaims::measure(Time now) {
  for (auto& [id, known] : tenants_) {
    known.arrivals = known.meter.arrivals(now);
    const SloMeasure measure = known.meter.take(now, kFewestIterations);
    known.is_measured = measure.processes > 0 && known.meter.groups() > 0;
    SloStatus& status = known.status;
    if (!known.is_measured) {
      if (now - known.meter.last_end() >= kLongIdle && status.throughput > 0) status.throughput = 0;
      continue;
    }
    status.latency = measure.latency;
    status.p99 = measure.p99;
    status.throughput = measure.throughput;
    status.source = measure.source;
    status.confidence = measure.confidence;
    known.measure = measure;
    const double ended = measure.throughput / static_cast<double>(measure.processes);
    const bool is_met = measure.latency <= seconds(known.status.slo);
    if (known.arrivals <= ended * kBatch) {
      known.batches = 0;
    } else if (is_met) {
      ++known.batches;
    }
    if (!known.has_own_set) {  // it takes longer because of the others
      known.reference_groups = 0;
      continue;
    }
    const double service = service_of(measure);
    if (known.reference_groups == known.meter.groups()) {
      const double off = service / known.reference;
      if (off > 1 + kOtherWork || off < 1 / (1 + kOtherWork)) known.knee.reset();
    }
    known.reference_groups = known.meter.groups();
    known.reference = service;
  }
}

void SloClaims::round(Time now, bool is_measured) {
  for (auto& [id, known] : tenants_) known.is_measured = false;
  if (is_measured) {
    measure(now);
  } else {
    search_.stop(now);
  }
  uint64_t weights = 0;
  for (const auto& [id, known] : tenants_) weights += std::max(known.settings.weight, 1U);
  views_.clear();
  for (const auto& [id, known] : tenants_) views_.push_back(view(id, known, weights));
  shares_ = policy_.decide(views_);
  const bool is_crowded = do_share(views_, shares_);
  if (is_crowded) search_.stop(now);
  sample_ = is_measured && !is_crowded ? search(now) : std::nullopt;
}

// True: others than before.
bool SloClaims::look_who_is_behind(Time now) {
  bool is_other = false;
  for (auto& [id, known] : tenants_) {
    const double service = service_of(known.measure);
    const auto backlog = static_cast<double>(known.meter.backlog());
    // One that is behind is so until its queue is short.
    const double longest = seconds(known.status.slo) * (known.is_behind ? 1 : 2);
    const bool is_long =
        longest > 0 && known.batches < kBatches && backlog >= kQueue && backlog * service > longest;
    if (!is_long) {
      known.behind_since.reset();
    } else if (!known.behind_since) {
      known.behind_since = now;
    }
    const bool is_behind = is_long && (known.is_behind || now - *known.behind_since >= kBehind);
    is_other = is_other || is_behind != known.is_behind;
    known.is_behind = is_behind;
  }
  return is_other;
}

// Groups more for each share, of `spare`: for the sets in which somebody is behind, by how many
// are, no more than each member may have, nor than help one that is alone there. Who asked for its
// target itself takes nothing from others.
std::vector<uint32_t> SloClaims::help(uint32_t spare) const {
  struct Set {
    uint32_t members = 0, heads = 0, most = UINT32_MAX, knee = UINT32_MAX;
  };
  std::map<uint32_t, Set> sets;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const Known& known = tenants_.at(shares_[i].id);
    const uint32_t groups = groups_of(shares_[i]);
    Set& set = sets[shares_[i].set];
    ++set.members;
    set.heads += known.is_behind && !known.status.is_asked_by_program;
    set.most = std::min(set.most, std::max(views_[i].most, groups) - groups);
    set.knee = std::max(views_[i].knee.value_or(geometry_.groups), groups) - groups;
  }
  std::erase_if(sets, [](const auto& entry) { return entry.second.heads == 0; });
  std::vector<GroupClaim> claims;
  claims.reserve(sets.size());
  for (const auto& [number, set] : sets)
    claims.push_back({set.members == 1 ? std::min(set.most, set.knee) : set.most, set.heads});
  const std::vector<uint32_t> given = divide_max_min(spare, claims);
  std::vector<uint32_t> more(shares_.size());
  for (size_t i = 0; i < shares_.size(); ++i)
    if (const auto at = sets.find(shares_[i].set); at != sets.end())
      more[i] = given[static_cast<size_t>(std::distance(sets.begin(), at))];
  return more;
}

// What it is tried with in this round, while its knee is sought.
std::optional<uint32_t> SloClaims::sampled(const SloShare& share) const {
  if (!sample_ || sample_->id != share.id) return std::nullopt;
  return sample_->groups;
}

uint32_t SloClaims::groups_of(const SloShare& share) const {
  return sampled(share).value_or(share.groups);
}

SloTenant SloClaims::view(uint32_t id, const Known& known, uint64_t weights) const {
  const uint32_t weight = std::max(known.settings.weight, 1U);
  const auto fair =
      static_cast<uint32_t>(std::max<uint64_t>(uint64_t{geometry_.groups} * weight / weights, 1));
  SloTenant tenant;
  tenant.id = id;
  tenant.slo = known.status.slo;
  tenant.weight = weight;
  tenant.groups = known.meter.groups();
  tenant.knee = cap_of(known);
  tenant.most = geometry_.groups;
  tenant.first = fair;
  if (known.settings.sm_percent)
    tenant.most = groups_of_percent(*known.settings.sm_percent, geometry_);
  if (known.status.is_asked_by_program) tenant.most = std::min(tenant.most, fair);
  tenant.can_share = !known.status.is_asked_by_program;
  // Several processes share the tenant's groups and its requests: each is a queue of its own.
  if (known.batches < kBatches) tenant.arrivals = known.arrivals;
  if (!known.is_measured) return tenant;
  const auto queues = static_cast<double>(known.measure.processes);
  tenant.iterations =
      static_cast<uint32_t>(std::min<uint64_t>(known.measure.iterations, UINT32_MAX));
  tenant.latency = known.measure.latency;
  tenant.service = known.measure.service;
  tenant.throughput = known.measure.throughput / queues;
  if (known.batches >= kBatches) tenant.arrivals = tenant.throughput;
  tenant.launches = known.measure.launches;
  return tenant;
}

// A search that could not begin with all groups, and found that it needs what it had, says nothing
// of more.
std::optional<uint32_t> SloClaims::cap_of(const Known& known) const {
  if (!known.knee) return std::nullopt;
  if (known.knee->knee == known.knee->widest && known.knee->widest < geometry_.groups)
    return std::nullopt;
  return known.knee->knee;
}

std::optional<KneeSearch::Sample> SloClaims::search(Time now) {
  uint32_t taken = 0;
  std::vector<KneeSearch::View> views;
  for (size_t i = 0; i < views_.size(); ++i) {
    const Known& known = tenants_.at(views_[i].id);
    if (views_[i].slo.count() == 0) {
      ++taken;
      continue;
    }
    taken += shares_[i].groups;
    const double slo = seconds(views_[i].slo);
    views.push_back({.id = views_[i].id,
                     .is_known = known.knee.has_value(),
                     .is_measured = known.is_measured,
                     .groups = known.meter.groups(),
                     .share = shares_[i].groups,
                     .most = views_[i].most,
                     .move = shares_[i].move,
                     .slo = slo,
                     .latency = known.measure.latency,
                     .service = service_of(known.measure),
                     .longest_service = policy_.longest_service(views_[i].id, slo)});
  }
  const auto sample =
      search_.step(now, views, geometry_.groups - std::min(taken, geometry_.groups));
  if (const auto found = search_.take_found()) keep(*found);
  return sample;
}

void SloClaims::keep(const KneeSearch::Found& found) {
  Known& known = tenants_.at(found.id);
  known.knee = found.knee;
  if (knees_ == nullptr || known.command.empty()) return;
  knees_->put(known.command, gpu_name_, found.knee);
  const auto saved = knees_->save();
  if (!saved && !has_failed_) log_warning("{}", saved.error().message());
  has_failed_ = !saved;
}

void SloClaims::make_claims() {
  uint32_t left = geometry_.groups;
  std::set<uint32_t> counted;
  std::map<uint32_t, uint32_t> weights, most_of;  // by set, of those without a target
  for (size_t i = 0; i < shares_.size(); ++i) {
    const SloShare& share = shares_[i];
    if (views_[i].slo.count() > 0) {
      if (counted.insert(share.set).second) left -= std::min(groups_of(share), left);
      continue;
    }
    weights[share.set] += views_[i].weight;
    const auto most = most_of.try_emplace(share.set, views_[i].most).first;
    most->second = std::min(most->second, views_[i].most);
  }
  const auto others = static_cast<uint32_t>(weights.size());
  const std::vector<uint32_t> more = help(left - std::min(others, left));
  counted.clear();
  for (size_t i = 0; i < shares_.size(); ++i) {
    const SloShare& share = shares_[i];
    Known& known = tenants_.at(share.id);
    if (views_[i].slo.count() == 0) continue;
    if (counted.insert(share.set).second) left -= more[i];
    known.claim = {.groups = std::max(groups_of(share) + more[i], 1U),
                   .can_borrow = !sampled(share) && share.move == SloMove::kStarved,
                   .idle_after = kLongIdle,
                   .set = share.set};
    const uint32_t most = std::min(views_[i].most, views_[i].knee.value_or(geometry_.groups));
    known.status.needs = share.demand;
    known.status.knee = views_[i].knee.value_or(0);
    known.status.state = sampled(share) ? SloState::kSampling
                         : more[i] > 0  ? SloState::kGrows
                                        : state_of(known, share, most);
  }
  std::vector<uint32_t> parts;
  parts.reserve(weights.size());
  for (const auto& [set, weight] : weights) parts.push_back(weight);
  const std::vector<uint32_t> rest = divide_in_proportion(left, parts, 1);
  for (size_t i = 0; i < shares_.size(); ++i) {
    Known& known = tenants_.at(shares_[i].id);
    if (views_[i].slo.count() > 0) continue;
    const auto place = std::distance(weights.begin(), weights.find(shares_[i].set));
    const uint32_t groups = rest[static_cast<size_t>(place)];
    known.claim = {.groups = std::clamp(groups, 1U, most_of.at(shares_[i].set)),
                   .set = shares_[i].set};
    known.status.needs = 0;
    known.status.state = SloState::kRest;
  }
}

SloState SloClaims::state_of(const Known& known, const SloShare& share, uint32_t most) {
  if (known.status.latency < 0) return SloState::kUnmeasured;
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
  const bool is_missed = known.status.latency > seconds(known.status.slo);
  if (is_missed && !known.has_own_set) return SloState::kStarved;
  return is_missed && share.groups >= most ? SloState::kAtMost : SloState::kMeets;
}

std::optional<SloStatus> SloClaims::status(uint32_t tenant) const {
  const auto known = tenants_.find(tenant);
  if (known == tenants_.end()) return SloStatus{};
  return known->second.status;
}

}  // namespace gpushare
