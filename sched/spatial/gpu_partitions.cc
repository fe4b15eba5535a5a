// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/gpu_partitions.h"

#include <algorithm>
#include <bit>
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
    if (said <= ShimFollows::kNewerDriver) worst = graver(worst, said);
    if (client.said.launches > 0) elsewhere_[client.tenant] |= groups_of(applied, geometry_);
  }
  left_ = std::move(left);
}

// A tenant has what every process of it has confirmed.
void GpuPartitions::read(Time now, std::span<const ShimClient> clients) {
  read_places(now, clients);
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
      if (client.said.waits > 0 && client.said.launches > 0) return false;
      const bool has_work =
          own.follows.load(std::memory_order_relaxed) == ShimFollows::kWorkRemains;
      return now - std::max(at, client.last_launch) >= (has_work ? kQuietWithWork : kQuiet);
    });
    if (is_confirmed) sets_.confirm(tenant, assigned);
    return is_confirmed;
  });
}

// A partition is idle when all of its tenants are.
std::vector<PlannedSet> GpuPartitions::present(Time now, std::span<const PlannedPartition> planned,
                                               std::span<const ShimClient> clients) const {
  std::map<uint32_t, Time> launched;  // by tenant, the last one
  for (const ShimClient& client : clients) {
    if (!concerns(client)) continue;
    Time& last = launched[client.tenant];
    last = std::max(last, client.last_launch);
  }
  std::vector<PlannedSet> sets;
  for (const PlannedPartition& partition : planned) {
    PlannedSet set{.tenants = {},
                   .groups = partition.groups,
                   .is_idle = true,
                   .can_borrow = partition.can_borrow};
    for (const uint32_t tenant : partition.tenants) {
      const auto last = launched.find(tenant);
      if (last == launched.end()) continue;
      set.tenants.push_back(tenant);
      set.is_idle = set.is_idle && now - last->second >= partition.idle_after;
    }
    if (!set.tenants.empty()) sets.push_back(std::move(set));
  }
  return sets;
}

void GpuPartitions::apply(Time now, std::span<const PlannedPartition> planned,
                          std::span<const ShimClient> clients) {
  std::vector<PlannedSet> sets = present(now, planned, clients);
  if (sets != planned_) {
    sizes_ = sets_.plan(sets);
    planned_ = std::move(sets);
  }
  for (const Assignment& assignment : sets_.take_assignments()) told_at_[assignment.to] = now;
  tell(clients);
  announce(clients);
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
  return word_of(sets_.assigned(tenant), geometry_);
}

bool GpuPartitions::may_enter(uint32_t tenant) const {
  const auto size = sizes_.find(tenant);
  if (size == sizes_.end()) return true;
  const auto has = static_cast<uint32_t>(std::popcount(sets_.assigned(tenant)));
  return has > 0 && has >= std::min(size->second.entitled, size->second.target);
}

bool GpuPartitions::is_awaited(Time now) const {
  return !is_settled() &&
         std::ranges::any_of(told_at_, [&](const auto& told) { return now - told.second < kSoon; });
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
