// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial.h"

#include <algorithm>
#include <bit>
namespace gpushare {
namespace {

constexpr uint32_t kSmsPerGroup = 8;

// The driver splits an H200's 132 SMs into 15 groups of 8 and leaves 12 over (measured): one group
// less than there is room for.
SmGeometry geometry_of(const GpuInfo& gpu) {
  const uint32_t room = gpu.sm_count / kSmsPerGroup;
  return {
      .groups = std::clamp(room, 2U, 65U) - 1, .sms_per_group = kSmsPerGroup, .sms = gpu.sm_count};
}

uint64_t launches_of(const ShimSlot& slot) {
  uint64_t sum = 0;
  for (const ShimStripe& stripe : slot.stripes)
    sum += stripe.launches.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace

Spatial::Spatial(std::span<const GpuInfo> gpus) {
  for (const GpuInfo& info : gpus.first(std::min<std::size_t>(gpus.size(), kShimGpus))) {
    const SmGeometry geometry = geometry_of(info);
    gpus_.push_back({.info = info,
                     .geometry = geometry,
                     .partition = SmPartition(geometry),
                     .wishes = {},
                     .entitled = {},
                     .ordered_at = {}});
  }
}

ShimWish Spatial::wish(uint32_t tenant, const TenantSettings& settings) const {
  ShimWish wish;
  if (!settings.sm_percent || gpus_.empty()) return wish;
  wish.features = kShimGate | kShimPartitions;
  wish.is_closed = true;
  for (const Gpu& gpu : gpus_)
    wish.gpus.push_back({.pci = gpu.info.pci, .groups = gpu.partition.ordered(tenant)});
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
    is_calm = is_calm && gpu.partition.is_settled();
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
  std::erase_if(gpu.ordered_at, [&](const auto& order) {
    const uint32_t tenant = order.first;
    const Time at = order.second;
    const SmGroups ordered = gpu.partition.ordered(tenant);
    const bool is_confirmed = std::ranges::all_of(clients, [&](const Client& client) {
      if (client.tenant != tenant || !is_on(client, gpu)) return true;
      const ShimGpu& own = client.slot->gpus[place];
      if (own.wanted.load(std::memory_order_relaxed) != ordered) return false;  // it has just come
      if (own.applied.load(std::memory_order_acquire) == ordered) return true;
      return now - std::max(at, known_[client.process].last_launch) >= kQuiet;
    });
    if (is_confirmed) gpu.partition.confirm(tenant, ordered);
    return is_confirmed;
  });
}

void Spatial::plan(Gpu& gpu, std::size_t place, Time now, std::span<const Client> clients,
                   const Tenants& tenants) {
  std::map<uint32_t, Time> last_launch;  // by tenant
  for (const Client& client : clients) {
    if (!is_on(client, gpu)) continue;
    Time& last = last_launch.try_emplace(client.tenant, Time{}).first->second;
    last = std::max(last, known_[client.process].last_launch);
  }
  std::vector<PartitionWish> wishes;
  for (const auto& [tenant, last] : last_launch) {
    const Tenant* settings = tenants.at(tenant);
    const uint32_t percent =
        settings == nullptr ? 100 : settings->settings.sm_percent.value_or(100);
    wishes.push_back({.holder = tenant,
                      .groups = groups_of_percent(percent, gpu.geometry),
                      .is_idle = now - last >= kIdle,
                      .can_borrow = true});
  }
  if (wishes != gpu.wishes) {
    gpu.entitled.clear();
    for (const PartitionGrant& grant : gpu.partition.plan(wishes))
      gpu.entitled[grant.holder] = grant.entitled;
    gpu.wishes = std::move(wishes);
  }
  for (const PartitionOrder& order : gpu.partition.take_orders())
    gpu.ordered_at[order.holder] = now;
  for (const Client& client : clients) {
    const SmGroups ordered = is_on(client, gpu) ? gpu.partition.ordered(client.tenant) : 0;
    std::atomic<uint64_t>& wanted = client.slot->gpus[place].wanted;
    if (wanted.load(std::memory_order_relaxed) != ordered)
      wanted.store(ordered, std::memory_order_relaxed);
  }
}

// False: somebody waits at its gate.
bool Spatial::let_in(Time now, std::span<const Client> clients) {
  bool is_empty = true;
  for (const Client& client : clients) {
    Known& known = known_[client.process];
    if (!known.is_held) continue;
    const bool has_its_parts = std::ranges::all_of(gpus_, [&](const Gpu& gpu) {
      return !is_on(client, gpu) || gpu.partition.ordered(client.tenant) != 0;
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
  const auto entitled = at->entitled.find(tenant);
  if (entitled == at->entitled.end()) return {};
  const auto in_use = static_cast<uint32_t>(std::popcount(at->partition.in_use(tenant)));
  return {.entitled = entitled->second * kSmsPerGroup, .in_use = in_use * kSmsPerGroup};
}

}  // namespace gpushare
