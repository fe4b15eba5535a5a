// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/orders.h"

#include <algorithm>
#include <bit>

namespace gpushare {
namespace {

// ShimGpu::wanted and applied. Who has all groups needs no partition.
uint64_t word_of(SmGroups groups, const SmGeometry& geometry) {
  return std::popcount(groups) == static_cast<int>(geometry.groups) ? 0 : groups;
}

template <class Word, class Value>
void put(Word& word, Value value) {
  if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
}

}  // namespace

Spatial::Spatial(std::span<const GpuInfo> gpus, const MakeSmClaims& make) {
  for (const GpuInfo& info : gpus.first(std::min<std::size_t>(gpus.size(), kShimGpus))) {
    const SmGeometry geometry = geometry_of(info.sm_count);
    gpus_.push_back({.info = info,
                     .geometry = geometry,
                     .sets = SmSets(geometry),
                     .neighbours = SmNeighbours(geometry),
                     .claims = make(info, geometry),
                     .wishes = {},
                     .granted = {},
                     .ordered_at = {},
                     .follows = {}});
  }
}

void Spatial::set_claims(const MakeSmClaims& make) {
  for (Gpu& gpu : gpus_) gpu.claims = make(gpu.info, gpu.geometry);
}

bool Spatial::is_of(std::span<const GpuInfo> gpus) const {
  return std::ranges::equal(gpus_, gpus, [](const Gpu& own, const GpuInfo& other) {
    return own.info.index == other.index && own.info.pci == other.pci &&
           own.info.sm_count == other.sm_count;
  });
}

ShimRequest Spatial::wish(uint32_t tenant, const TenantSettings& settings) const {
  ShimRequest wish;
  for (const Gpu& gpu : gpus_) wish.features |= gpu.claims->features(settings);
  if (wish.features == 0) return wish;
  wish.is_closed = true;
  for (const Gpu& gpu : gpus_)
    wish.gpus.push_back(
        {.pci = gpu.info.pci, .groups = word_of(gpu.sets.ordered(tenant), gpu.geometry)});
  return wish;
}

bool Spatial::fits(const ShimSlot& slot) const {
  if (slot.head.gpu_count != gpus_.size()) return false;
  for (std::size_t place = 0; place < gpus_.size(); ++place)
    if (gpus_[place].info.pci != slot.gpus[place].pci) return false;
  return true;
}

bool Spatial::is_on(const Client& client, const Gpu& gpu) {
  return client.gpus.empty() || std::ranges::find(client.gpus, gpu.info.index) != client.gpus.end();
}

Time Spatial::step(Time now, std::span<const Client> clients, const Tenants& tenants) {
  watch(now, clients);
  bool is_calm = true;
  for (std::size_t place = 0; place < gpus_.size(); ++place) {
    Gpu& gpu = gpus_[place];
    take_answers(gpu, place, now, clients);
    plan(gpu, place, now, clients, tenants);
    announce(gpu, place, clients);
    is_calm = is_calm && gpu.sets.is_settled();
  }
  is_calm = let_in(now, clients) && is_calm;
  return now + (is_calm ? kCalmLook : kBusyLook);
}

void Spatial::watch(Time now, std::span<const Client> clients) {
  std::erase_if(known_, [&](const auto& known) {
    return std::ranges::none_of(
        clients, [&](const Client& client) { return client.process == known.first; });
  });
  for (const Client& client : clients) {
    const auto [at, is_new] = known_.try_emplace(client.process);
    Known& known = at->second;
    const uint64_t launches = launches_of(*client.slot);
    if (is_new) known.came = known.last_launch = now;
    if (launches == known.launches) continue;
    known.launches = launches;
    known.last_launch = now;
  }
}

// What every process of a tenant has confirmed, the tenant has.
void Spatial::take_answers(Gpu& gpu, std::size_t place, Time now, std::span<const Client> clients) {
  gpu.follows.clear();
  for (const Client& client : clients) {
    const ShimGpu& own = client.slot->gpus[place];
    if (!is_on(client, gpu) ||
        own.applied.load(std::memory_order_relaxed) == own.wanted.load(std::memory_order_relaxed))
      continue;
    ShimFollows& worst =
        gpu.follows.try_emplace(client.tenant, ShimFollows::kFollows).first->second;
    const ShimFollows said = own.follows.load(std::memory_order_relaxed);
    if (said <= ShimFollows::kRefused) worst = std::max(worst, said);
  }
  std::erase_if(gpu.ordered_at, [&](const auto& order) {
    const uint32_t tenant = order.first;
    const Time at = order.second;
    const SmGroups ordered = gpu.sets.ordered(tenant);
    const uint64_t word = word_of(ordered, gpu.geometry);
    const bool is_confirmed = std::ranges::all_of(clients, [&](const Client& client) {
      if (client.tenant != tenant || !is_on(client, gpu)) return true;
      const ShimGpu& own = client.slot->gpus[place];
      if (own.wanted.load(std::memory_order_relaxed) != word) return false;  // it has just come
      if (own.applied.load(std::memory_order_acquire) == word) return true;
      return now - std::max(at, known_[client.process].last_launch) >= kQuiet;
    });
    if (is_confirmed) gpu.sets.confirm(tenant, ordered);
    return is_confirmed;
  });
}

std::vector<SmClaimant> Spatial::claimants(const Gpu& gpu, std::span<const Client> clients,
                                           const Tenants& tenants) const {
  std::map<uint32_t, SmClaimant> by_tenant;
  for (const Client& client : clients) {
    if (!is_on(client, gpu)) continue;
    const auto [at, is_new] = by_tenant.try_emplace(client.tenant);
    SmClaimant& claimant = at->second;
    if (is_new) {
      claimant.tenant = client.tenant;
      if (const Tenant* tenant = tenants.at(client.tenant)) claimant.settings = tenant->settings;
      claimant.groups = static_cast<uint32_t>(std::popcount(gpu.sets.in_use(client.tenant)));
      if (const auto granted = gpu.granted.find(client.tenant); granted != gpu.granted.end())
        claimant.sharers = granted->second.sharers;
    }
    claimant.processes.push_back({client.process, client.slot, client.command_line});
  }
  std::vector<SmClaimant> all;
  all.reserve(by_tenant.size());
  for (auto& entry : by_tenant) all.push_back(std::move(entry.second));
  return all;
}

// Of the sets, in the order of their first tenants. One is idle when all of its tenants are.
std::vector<SetWish> Spatial::wishes_of(Time now, const std::vector<SmClaimant>& present,
                                        const std::vector<SmClaim>& claims) const {
  std::vector<SetWish> wishes;
  std::map<uint32_t, std::size_t> by_set;
  for (std::size_t i = 0; i < present.size(); ++i) {
    Time last_launch{};
    for (const SmClaimant::Process& process : present[i].processes)
      last_launch = std::max(last_launch, known_.at(process.id).last_launch);
    const SmClaim& claim = claims[i];
    const auto [at, is_new] = by_set.try_emplace(claim.set, wishes.size());
    if (is_new || claim.set == SmClaim::kOwnSet) {
      at->second = wishes.size();
      wishes.push_back(
          {.tenants = {}, .groups = claim.groups, .is_idle = true, .can_borrow = false});
    }
    SetWish& wish = wishes[at->second];
    wish.tenants.push_back(present[i].tenant);
    wish.is_idle = wish.is_idle && now - last_launch >= claim.idle_after;
    wish.can_borrow = wish.can_borrow || claim.can_borrow;
  }
  return wishes;
}

void Spatial::plan(Gpu& gpu, std::size_t place, Time now, std::span<const Client> clients,
                   const Tenants& tenants) {
  const std::vector<SmClaimant> present = claimants(gpu, clients, tenants);
  const std::vector<SmClaim> claims = gpu.claims->decide(now, present);
  std::vector<SetWish> wishes = wishes_of(now, present, claims);
  if (wishes != gpu.wishes) {
    gpu.granted = gpu.sets.plan(wishes);
    gpu.wishes = std::move(wishes);
  }
  for (const SetOrder& order : gpu.sets.take_orders()) gpu.ordered_at[order.tenant] = now;
  tell(gpu, place, clients);
}

// What each shall do, and what its program may read of its share.
void Spatial::tell(const Gpu& gpu, std::size_t place, std::span<const Client> clients) const {
  for (const Client& client : clients) {
    ShimGpu& own = client.slot->gpus[place];
    put(own.wanted,
        is_on(client, gpu) ? word_of(gpu.sets.ordered(client.tenant), gpu.geometry) : 0);
    const SmPart had = part(client.tenant, gpu.info.index);
    put(own.sms, gpu.info.sm_count);
    put(own.sms_entitled, had.entitled);
    put(own.sms_in_use, had.in_use);
  }
}

// While something moves what was announced before stays: it is what they move to.
void Spatial::announce(Gpu& gpu, std::size_t place, std::span<const Client> clients) const {
  static_assert(SmNeighbours::kMost == kShimSoon);
  if (!gpu.sets.is_settled()) return;
  std::map<uint32_t, SmGroups> sets;
  for (const Client& client : clients)
    if (is_on(client, gpu)) sets[client.tenant] = gpu.sets.ordered(client.tenant);
  gpu.neighbours.update(sets);
  for (const Client& client : clients) {
    const SmNeighbours::Sets soon =
        is_on(client, gpu) ? gpu.neighbours.of(client.tenant) : SmNeighbours::Sets{};
    for (std::size_t i = 0; i < soon.size(); ++i)
      put(client.slot->soon[place].sets[i], word_of(soon[i], gpu.geometry));
  }
}

// False: somebody waits at its gate.
bool Spatial::let_in(Time now, std::span<const Client> clients) {
  bool is_empty = true;
  for (const Client& client : clients) {
    Known& known = known_[client.process];
    if (!known.is_held) continue;
    const bool has_its_parts = std::ranges::all_of(gpus_, [&](const Gpu& gpu) {
      return !is_on(client, gpu) || gpu.sets.ordered(client.tenant) != 0;
    });
    if (!has_its_parts && now - known.came < kLongestStart) {
      is_empty = false;
      continue;
    }
    known.is_held = false;
    ShimHost::open_gate(*client.slot);
  }
  return is_empty;
}

SmPart Spatial::part(uint32_t tenant, uint32_t gpu) const {
  const auto at = std::ranges::find(gpus_, gpu, [](const Gpu& one) { return one.info.index; });
  if (at == gpus_.end()) return {};
  const auto granted = at->granted.find(tenant);
  if (granted == at->granted.end()) return {};
  const auto follows = at->follows.find(tenant);
  return {.entitled = at->geometry.sms_of_count(granted->second.entitled),
          .in_use = at->geometry.sms_of(at->sets.in_use(tenant)),
          .geometry = at->geometry,
          .sharers = granted->second.sharers,
          .set = granted->second.set,
          .follows = follows == at->follows.end() ? ShimFollows::kFollows : follows->second,
          .slo = at->claims->status(tenant)};
}

}  // namespace gpushare
