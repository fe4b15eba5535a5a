// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/gpu_partitions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace gpushare {
namespace {

// ShimGpu::wanted and applied. A tenant that has all groups needs no partition.
uint64_t word_of(SmGroups groups, const SmGeometry& geometry) {
  return std::popcount(groups) == static_cast<int>(geometry.groups) ? 0 : groups;
}

// What a process says; 0 is the whole GPU, and groups that there are not say nothing.
SmGroups groups_of(uint64_t word, const SmGeometry& geometry) {
  const SmGroups all = geometry.last() | (geometry.last() - 1);
  return word == 0 ? all : word & all;
}

// kQuiet for one whose gate was closed before: only a launch that was under way may come.
constexpr Nanos kQuietAtGate = std::chrono::milliseconds(4);

// While assignments are younger than this, an answer may come at any moment.
constexpr Nanos kAnswersSoon = std::chrono::milliseconds(100);

// So long after the last launch that left its partition this is shown.
constexpr Nanos kShownFor = std::chrono::seconds(5);

template <class Word, class Value>
void put(Word& word, Value value) {
  if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
}

}  // namespace

GpuPartitions::GpuPartitions(const GpuInfo& gpu, std::size_t place)
    : gpu_(gpu),
      place_(place),
      geometry_(geometry_of(gpu.sm_count)),
      sets_(geometry_),
      neighbours_(geometry_) {}

bool GpuPartitions::concerns(const ShimClient& client) const {
  return client.gpus.empty() || std::ranges::find(client.gpus, gpu_.index) != client.gpus.end();
}

uint32_t GpuPartitions::sms_of(const ShimSlot& slot) const {
  const auto sms_in = [&](const std::atomic<uint64_t>& word) {
    return geometry_.sms_of(groups_of(word.load(std::memory_order_relaxed), geometry_));
  };
  const ShimGpu& own = slot.gpus[place_];
  return std::min(sms_in(own.applied), sms_in(own.wanted));
}

// Which of two reasons to show: what passes by itself comes last.
ShimFollows graver(ShimFollows one, ShimFollows other) {
  const auto rank = [](ShimFollows reason) {
    const bool passes = reason == ShimFollows::kWaitsForRest || reason == ShimFollows::kWorkRemains;
    return passes ? 2 : reason <= ShimFollows::kFollows ? 1 : 3 + static_cast<int>(reason);
  };
  return rank(one) >= rank(other) ? one : other;
}

// Where the processes are, and what keeps them from being where they were told.
void GpuPartitions::read_places(Time now, std::span<const ShimClient> clients) {
  follows_.clear();
  elsewhere_.clear();
  std::map<ProcessId, Left> left;
  for (const ShimClient& client : clients) {
    if (!concerns(client)) continue;
    const ShimGpu& own = client.slot->gpus[place_];
    ShimFollows& worst = follows_.try_emplace(client.tenant, ShimFollows::kFollows).first->second;
    const uint64_t count = client.slot->home_launches[place_].load(std::memory_order_relaxed);
    const auto before = left_.find(client.process);
    Left& one = left[client.process] =
        before == left_.end() ? Left{.launches = count} : before->second;
    if (std::exchange(one.launches, count) != count) one.last = now;
    if (one.last != Time{} && now - one.last < kShownFor)
      worst = graver(worst, ShimFollows::kLeaves);
    const uint64_t applied = own.applied.load(std::memory_order_relaxed);
    if (applied == own.wanted.load(std::memory_order_relaxed)) continue;
    const ShimFollows said = own.follows.load(std::memory_order_relaxed);
    if (said <= ShimFollows::kBypassed) worst = graver(worst, said);
    if (client.said.launches > 0) elsewhere_[client.tenant] |= groups_of(applied, geometry_);
  }
  left_ = std::move(left);
}

// A tenant has what every process of it has confirmed.
void GpuPartitions::read(Time now, std::span<const ShimClient> clients) {
  read_places(now, clients);
  exchange_.advance(now, sets_);
  note_gone(clients);
  std::erase_if(told_at_, [&](const auto& told) {
    const uint32_t tenant = told.first;
    const Time at = told.second;
    const SmGroups assigned = sets_.assigned(tenant);
    const uint64_t word = word_of(assigned, geometry_);
    const bool is_confirmed = std::ranges::all_of(clients, [&](const ShimClient& client) {
      if (client.tenant != tenant || !concerns(client)) return true;
      const ShimGpu& own = client.slot->gpus[place_];
      if (own.wanted.load(std::memory_order_relaxed) != word) return false;  // it has just come
      if (own.applied.load(std::memory_order_acquire) == word) return true;
      if (client.said.waits > 0 && client.said.launches > 0 && !client.is_halted) return false;
      if (client.lends && client.said.is_at_gate) return true;
      const Nanos quiet = client.lends ? kQuietAtGate : kQuiet;
      const bool has_work =
          own.follows.load(std::memory_order_relaxed) == ShimFollows::kWorkRemains ||
          client.has_work_in_line || (client.is_halted && client.said.waits > 0);
      return now - std::max(at, client.last_call) >= (has_work ? kQuietWithWork : quiet);
    });
    if (is_confirmed) sets_.confirm(tenant, assigned);
    return is_confirmed;
  });
}

std::map<uint32_t, GpuPartitions::Tenant> GpuPartitions::tenants_of(
    std::span<const ShimClient> clients) const {
  std::map<uint32_t, Tenant> tenants;
  for (const ShimClient& client : clients) {
    if (!concerns(client)) continue;
    Tenant& tenant = tenants[client.tenant];
    tenant.last_launch = std::max(tenant.last_launch, client.last_launch);
    const uint64_t line = client.slot->drains[place_].ns.load(std::memory_order_relaxed);
    if (line <= static_cast<uint64_t>(Exchange::kLongestDrain.count()))
      tenant.line = std::max(tenant.line, Nanos(static_cast<int64_t>(line)));
    tenant.least = std::max(tenant.least, groups_of_least(client.least, geometry_));
    raise(tenant.needs, {.at_once = groups_of_sms(client.least.sms, geometry_),
                         .wished = groups_of_sms(client.least.wished_sms, geometry_)});
  }
  return tenants;
}

// A partition is idle when all of its tenants are, and none is smaller than a process in it needs.
// What runs on while it launches nothing is work, too, as far as it is known.
std::vector<PlannedSet> GpuPartitions::present(Time now, std::span<const PlannedPartition> planned,
                                               std::span<const ShimClient> clients) {
  const std::map<uint32_t, Tenant> tenants = tenants_of(clients);
  std::vector<PlannedSet> sets;
  std::vector<SetNeeds> needs;
  std::set<uint32_t> returned;  // tenants that have at once what they have lent
  next_idle_ = Time::max();
  for (const PlannedPartition& partition : planned) {
    PlannedSet set{.tenants = {}, .groups = partition.groups, .can_borrow = partition.can_borrow};
    SetNeeds needs_of_set;
    Time idle_at = partition.idle_after == Nanos::max() ? Time::max() : Time{};
    for (const uint32_t id : partition.tenants) {
      const auto tenant = tenants.find(id);
      if (tenant == tenants.end()) continue;
      const auto& [last_launch, line, least, own_needs] = tenant->second;
      set.tenants.push_back(id);
      set.least = std::max(set.least, least);
      raise(needs_of_set, own_needs);
      if (idle_at == Time::max()) continue;
      const Nanos works_on = partition.is_returned_at_once ? line : Nanos{};
      idle_at = std::max(idle_at, last_launch + partition.idle_after + works_on);
    }
    if (set.tenants.empty()) continue;
    set.is_idle = now >= idle_at;
    if (partition.is_returned_at_once) {
      returned.insert(set.tenants.begin(), set.tenants.end());
      if (!set.is_idle) next_idle_ = std::min(next_idle_, idle_at);
    }
    sets.push_back(std::move(set));
    needs.push_back(needs_of_set);
  }
  grant_needs(sets, std::move(needs), geometry_.groups);
  share_what_does_not_fit(sets, geometry_.groups);
  note_lenders(sets, returned);
  return sets;
}

// Who keeps all that it has lends nothing.
void GpuPartitions::note_lenders(std::span<const PlannedSet> sets,
                                 const std::set<uint32_t>& returned) {
  lenders_.clear();
  for (const PlannedSet& set : sets)
    for (const uint32_t tenant : set.tenants)
      if (set.is_idle && set.least < set.groups && returned.contains(tenant))
        lenders_.insert(tenant);
}

void GpuPartitions::apply(Time now, std::span<const PlannedPartition> planned,
                          std::span<const ShimClient> clients) {
  std::vector<PlannedSet> sets = present(now, planned, clients);
  if (sets != planned_ && may_plan(sets)) {
    sizes_ = sets_.plan(sets);
    planned_ = std::move(sets);
    exchange_.cancel();
  }
  const std::vector<Assignment> assignments = sets_.take_assignments();
  for (const Assignment& one : assignments) told_at_[one.to] = now;
  begin_exchange(now, assignments, clients);
  exchange_.advance(now, sets_);
  for (auto& [tenant, at] : told_at_) at = exchange_.told_at(tenant, at);
  tell(clients);
  announce(clients);
}

// An exchange is brought to its end before other sizes are; but nobody who comes, ends, lends or
// wants back what it has lent waits for it.
bool GpuPartitions::may_plan(std::span<const PlannedSet> sets) const {
  const auto is_same = [](const PlannedSet& one, const PlannedSet& other) {
    return one.tenants == other.tenants && one.is_idle == other.is_idle;
  };
  return !exchange_.is_under_way() || !std::ranges::equal(sets, planned_, is_same);
}

// How long what the tenant has in line takes, where it is now. 0: nothing is in line, or a process
// of it does not say.
Nanos GpuPartitions::drain(Time now, uint32_t tenant, std::span<const ShimClient> clients) const {
  Nanos longest{};
  for (const ShimClient& client : clients) {
    if (client.tenant != tenant || !concerns(client) || client.said.launches == 0) continue;
    if (client.said.waits == 0 && now - client.last_launch >= kQuiet) continue;
    const ShimDrain& own = client.slot->drains[place_];
    const uint64_t ns = own.ns.load(std::memory_order_relaxed);
    if (ns == 0 || ns > static_cast<uint64_t>(Exchange::kLongestDrain.count())) return {};
    const auto sms_of = [&](uint64_t word) { return geometry_.sms_of(groups_of(word, geometry_)); };
    const uint32_t measured = sms_of(own.place.load(std::memory_order_relaxed));
    const uint32_t has = sms_of(client.slot->gpus[place_].wanted.load(std::memory_order_relaxed));
    const double scale = static_cast<double>(std::max(measured, 1U)) / std::max(has, 1U);
    // The least that can be said, which means that its queue is empty, stays more than nothing.
    const auto scaled = static_cast<int64_t>(std::ceil(static_cast<double>(ns) * scale));
    longest = std::max(longest, Nanos(scaled));
  }
  return longest;
}

// Who gets what those give up that are told now is known by letting them confirm it, in a copy.
void GpuPartitions::begin_exchange(Time now, std::span<const Assignment> told,
                                   std::span<const ShimClient> clients) {
  if (told.empty() || exchange_.is_under_way()) return;
  std::vector<Exchange::Mover> shrink, grow;
  SmSets after = sets_;
  for (const auto& [tenant, at] : told_at_) {
    const SmGroups to = sets_.assigned(tenant), from = sets_.in_use(tenant);
    const bool is_new = std::ranges::find(told, tenant, &Assignment::to) != told.end();
    if (is_new && from != to && (to & ~from) == 0)
      shrink.push_back({.tenant = tenant, .from = from, .to = to});
    after.confirm(tenant, to);
  }
  for (const Assignment& next : after.take_assignments())
    if (!told_at_.contains(next.to))
      grow.push_back({.tenant = next.to, .from = sets_.assigned(next.to), .to = next.groups});
  for (auto* movers : {&shrink, &grow}) {
    for (Exchange::Mover& mover : *movers) {
      mover.drain = drain(now, mover.tenant, clients);
      if (mover.drain == Nanos::zero()) return;
    }
  }
  exchange_.begin(now, shrink, grow);
}

// Who has launched since it was told goes, or holds its launches until it can.
void GpuPartitions::note_gone(std::span<const ShimClient> clients) {
  if (!exchange_.is_under_way()) return;
  for (const ShimClient& client : clients) {
    if (!concerns(client)) continue;
    const ShimGpu& own = client.slot->gpus[place_];
    const uint64_t to =
        word_of(exchange_.groups(client.tenant, sets_.assigned(client.tenant)), geometry_);
    const uint64_t wanted = own.wanted.load(std::memory_order_relaxed);
    const ShimFollows follows = own.follows.load(std::memory_order_relaxed);
    const bool goes = follows == ShimFollows::kWorkRemains || follows == ShimFollows::kWaitsForRest;
    const bool is_there = own.applied.load(std::memory_order_relaxed) == wanted;
    if (wanted == to && (is_there || goes)) exchange_.note_gone(client.tenant);
  }
}

// Where each process is to run, and what its program may read of its share.
void GpuPartitions::tell(std::span<const ShimClient> clients) const {
  for (const ShimClient& client : clients) {
    ShimGpu& own = client.slot->gpus[place_];
    put(own.wanted, concerns(client) ? word(client.tenant) : 0);
    const TenantPartition has = partition(client.tenant);
    put(own.sms, gpu_.sm_count);
    put(own.sms_entitled, has.entitled);
    put(own.sms_in_use, has.in_use);
  }
}

// While something moves, what was announced before stays: it is what they move to.
void GpuPartitions::announce(std::span<const ShimClient> clients) {
  static_assert(SmNeighbours::kMost == kShimSoon);
  if (!sets_.is_settled()) return;
  std::map<uint32_t, SmGroups> sets;
  for (const ShimClient& client : clients)
    if (concerns(client)) sets[client.tenant] = sets_.assigned(client.tenant);
  neighbours_.update(sets);
  for (const ShimClient& client : clients) {
    const SmNeighbours::Sets soon =
        concerns(client) ? neighbours_.of(client.tenant) : SmNeighbours::Sets{};
    for (std::size_t i = 0; i < soon.size(); ++i)
      put(client.slot->soon[place_].sets[i], word_of(soon[i], geometry_));
  }
}

uint64_t GpuPartitions::word(uint32_t tenant) const {
  return word_of(exchange_.groups(tenant, sets_.assigned(tenant)), geometry_);
}

bool GpuPartitions::may_enter(uint32_t tenant) const {
  const auto size = sizes_.find(tenant);
  if (size == sizes_.end()) return true;
  const auto has = static_cast<uint32_t>(std::popcount(sets_.assigned(tenant)));
  return has > 0 && has >= std::min(size->second.entitled, size->second.target);
}

bool GpuPartitions::is_awaited(Time now) const {
  return !is_settled() && std::ranges::any_of(told_at_, [&](const auto& told) {
    return now - told.second < kAnswersSoon;
  });
}

TenantPartition GpuPartitions::partition(uint32_t tenant) const {
  const auto size = sizes_.find(tenant);
  if (size == sizes_.end()) return {};
  const auto follows = follows_.find(tenant);
  const SmGroups in_use = sets_.in_use(tenant);
  const auto elsewhere = elsewhere_.find(tenant);
  return {.entitled = geometry_.sms_of_count(size->second.entitled),
          .in_use = geometry_.sms_of(elsewhere == elsewhere_.end() ? in_use : elsewhere->second),
          .groups = static_cast<uint32_t>(std::popcount(in_use)),
          .geometry = geometry_,
          .sharers = size->second.sharers,
          .partition = size->second.set,
          .follows = follows == follows_.end() ? ShimFollows::kFollows : follows->second};
}

}  // namespace gpushare
