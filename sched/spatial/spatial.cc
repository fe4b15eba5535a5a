// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/spatial.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace gpushare {
namespace {

// Whether launches that its program has made wait on the GPU for their turn: a gate that is closed
// would keep them there, and nobody waits at it.
bool has_work_in_line(const ShimSlot& slot) {
  const ShimCredit& credit = slot.credit;
  return credit.held.load(std::memory_order_relaxed) == ShimHeld::kOnGpu &&
         credit.issued.load(std::memory_order_relaxed) !=
             credit.reached.load(std::memory_order_relaxed);
}

// ShimSlot::sms_shown.
uint32_t sms_shown(const LeastPartition& shown, const SmGeometry& geometry) {
  if (shown == LeastPartition{}) return 0;
  return geometry.sms_of_count(groups_of_least(shown, geometry));
}

}  // namespace

Spatial::Spatial(std::span<const SpatialGpu> gpus) {
  for (const SpatialGpu& gpu : gpus.first(std::min<std::size_t>(gpus.size(), kShimGpus))) {
    gpus_.emplace_back(gpu.info, gpus_.size());
    features_.push_back(gpu.features);
    besides_ |= gpu.besides;
  }
}

bool Spatial::set_gpus(std::span<const SpatialGpu> gpus) {
  gpus = gpus.first(std::min<std::size_t>(gpus.size(), kShimGpus));
  const auto is_same = [](const GpuPartitions& own, const SpatialGpu& other) {
    return own.gpu().index == other.info.index && own.gpu().pci == other.info.pci &&
           own.gpu().sm_count == other.info.sm_count;
  };
  std::vector<const SpatialGpu*> known, added;
  for (const GpuPartitions& own : gpus_) {
    const auto still =
        std::ranges::find_if(gpus, [&](const SpatialGpu& other) { return is_same(own, other); });
    if (still != gpus.end()) known.push_back(&*still);
  }
  if (known.size() < gpus_.size()) {
    Widening kept = std::move(widening_);
    *this = Spatial(gpus);
    widening_ = std::move(kept);
    return false;
  }
  for (const SpatialGpu& gpu : gpus)
    if (std::ranges::find(known, &gpu) == known.end()) added.push_back(&gpu);
  besides_ = 0;
  features_.clear();
  for (const auto* list : {&known, &added}) {
    for (const SpatialGpu* gpu : *list) {
      if (list == &added) gpus_.emplace_back(gpu->info, gpus_.size());
      features_.push_back(gpu->features);
      besides_ |= gpu->besides;
    }
  }
  return true;
}

ShimRequest Spatial::wish(uint32_t tenant, const TenantSettings& settings) const {
  ShimRequest wish;
  for (const uint32_t features : features_)
    wish.features |= features | (settings.sm_percent ? kShimGate | kShimPartitions : 0U);
  if (wish.features == 0) return wish;
  wish.features |= besides_;
  constexpr uint32_t kBounded = kShimPartitions | kShimCredit;
  if ((wish.features & kBounded) == kBounded) wish.most_ahead_us = kMostAheadUs;
  wish.is_closed = true;
  const bool may_move = (wish.features & kShimPartitions) != 0;
  const LeastPartition shown = may_move ? shown_partition(settings) : LeastPartition{};
  if (shown != LeastPartition{}) wish.features |= kShimShown;
  for (const GpuPartitions& gpu : gpus_)
    wish.gpus.push_back({.pci = gpu.gpu().pci,
                         .groups = gpu.word(tenant),
                         .sms_shown = sms_shown(shown, gpu.geometry())});
  return wish;
}

// The process may have written over all of it, also over the end of a text.
bool Spatial::fits(const ShimSlot& slot, std::size_t count) const {
  if (slot.head.gpu_count.load(std::memory_order_relaxed) != count) return false;
  for (std::size_t place = 0; place < count; ++place) {
    const auto& pci = slot.gpus[place].pci;
    if (gpus_[place].gpu().pci != std::string_view(pci, ::strnlen(pci, sizeof pci))) return false;
  }
  return true;
}

void Spatial::extend(ShimSlot& slot, uint32_t tenant, const LeastPartition& shown) const {
  const std::size_t count = slot.head.gpu_count.load(std::memory_order_relaxed);
  if ((slot.head.features & kShimPartitions) == 0 || count > gpus_.size() || !fits(slot, count))
    return;
  for (std::size_t place = count; place < gpus_.size(); ++place)
    ShimHost::add_gpu(slot, static_cast<uint32_t>(place),
                      {.pci = gpus_[place].gpu().pci,
                       .groups = gpus_[place].word(tenant),
                       .sms_shown = sms_shown(shown, gpus_[place].geometry())});
}

void Spatial::read(Time now, std::vector<ShimClient> clients) {
  clients_ = std::move(clients);
  std::map<ProcessId, Known> known;
  for (ShimClient& client : clients_) {
    const auto before = known_.find(client.process);
    Known& one = known[client.process];
    one = before == known_.end() ? Known{.last_launch = now, .last_call = now, .came = now}
                                 : before->second;
    // Whoever waits for its kernels, or for what its tenant has lent, is at work, however far its
    // launches are apart.
    const bool waits_for_groups = one.is_held && one.lends && client.said.is_at_gate;
    client.has_work_in_line = has_work_in_line(*client.slot);
    // One that was stopped waits on, also when its work has ended.
    const bool waits = (client.said.waits > 0 && client.said.launches > 0 && !client.is_halted) ||
                       waits_for_groups;
    if (std::exchange(one.launches, client.said.launches) != client.said.launches || waits)
      one.last_call = now;
    one.last_launch = client.has_work_in_line ? now : std::max(one.last_launch, one.last_call);
    client.came = one.came;
    client.last_call = one.last_call;
    client.lends = one.is_held && one.lends;
    client.last_launch = one.last_launch;
  }
  known_ = std::move(known);
  widen(now);
  for (GpuPartitions& gpu : gpus_) gpu.read(now, clients_);
}

bool is_held(const ShimClient& client) {
  return (client.slot->gate.load(std::memory_order_relaxed) & 1) != 0 || client.said.is_at_gate ||
         client.said.at_boundary || client.is_halted;
}

// What a process says that it needs counts only as far as its GPUs have it.
void Spatial::widen(Time now) {
  std::vector<Widening::Seen> seen;
  for (const ShimClient& client : clients_) {
    const ShimSlot& slot = *client.slot;
    const bool is_held = gpushare::is_held(client);
    Widening::Seen& one = seen.emplace_back();
    one = {.process = client.process,
           .program = client.program,
           .launches = client.said.launches,
           .waits = client.said.waits > 0 && !is_held};
    for (std::size_t place = 0; place < gpus_.size(); ++place) {
      if (!gpus_[place].concerns(client)) continue;
      const auto of_gpu = [&](const std::atomic<uint32_t>& said) {
        const uint32_t sms = said.load(std::memory_order_relaxed);
        return sms <= gpus_[place].geometry().sms ? sms : 0;
      };
      const uint32_t has = gpus_[place].sms_of(slot);
      const uint32_t at_once = of_gpu(slot.needs[place].at_once_sms);
      one.refused_sms = std::max(one.refused_sms, of_gpu(slot.needs[place].refused_sms));
      if (one.has_sms != 0 && at_once <= has) continue;
      one.at_once_sms = at_once;
      one.has_sms = has;
    }
  }
  found_ = widening_.step(now, seen);
  for (ShimClient& client : clients_) {
    const Widening::Needs needs = widening_.needs(client.process);
    client.least.sms = needs.stuck_sms;
    client.least.wished_sms = needs.refused_sms;
  }
}

std::vector<ProcessView> Spatial::views(uint32_t index) const {
  const GpuPartitions* const gpu = find(index);
  std::vector<ProcessView> views;
  for (const ShimClient& client : clients_) {
    if (gpu != nullptr ? !gpu->concerns(client)
                       : std::ranges::find(client.gpus, index) == client.gpus.end())
      continue;
    views.push_back({.process = client.process,
                     .tenant = client.tenant,
                     .has_context = false,
                     .has_shim = true,
                     .came = client.came,
                     .command_line = client.command_line,
                     .last_launch = client.last_launch,
                     .lends = client.lends,
                     .iterations = client.said.iterations});
  }
  return views;
}

void Spatial::apply(Time now, uint32_t index, std::span<const PlannedPartition> planned) {
  if (const auto gpu =
          std::ranges::find(gpus_, index, [](const GpuPartitions& one) { return one.gpu().index; });
      gpu != gpus_.end())
    gpu->apply(now, planned, clients_);
}

Time Spatial::finish(Time now, const IsNamed& stays_closed) {
  hold_lenders();
  Nanos look = let_in(now, stays_closed);
  for (const GpuPartitions& gpu : gpus_) {
    if (!gpu.is_settled()) look = std::min(look, gpu.is_awaited(now) ? kBusyLook : kFirstLook);
    if (const Time then = gpu.next_idle(); then != Time::max())
      look = std::min(look, std::max<Nanos>(then - now, kBusyLook));
    if (const Time then = gpu.next_telling(); then != Time::max())
      look = std::min(look, std::max(then - now, Nanos{}));
  }
  return now + look;
}

void Spatial::hold_lenders() {
  for (const ShimClient& client : clients_) {
    Known& known = known_[client.process];
    if (known.is_held || client.said.is_at_gate) continue;
    const bool lends = std::ranges::any_of(gpus_, [&](const GpuPartitions& gpu) {
      return gpu.concerns(client) && gpu.lends(client.tenant);
    });
    if (!lends) continue;
    known.is_held = known.lends = true;
    known.held_at = known.launches;
    known.waits_since = {};
  }
}

// Returns in what time to look again. A process without a launch stays held: its first partition is
// to be the one that it is entitled to when it comes to use it. The launch may have been counted in
// the slot of an agent that has died, while it waits in this one for credit.
Nanos Spatial::let_in(Time now, const IsNamed& stays_closed) {
  Nanos look = kCalmLook;
  for (const ShimClient& client : clients_) {
    Known& known = known_[client.process];
    if (gpus_.empty()) known.is_held = false;
    if (!known.is_held) continue;
    if (known.launches == known.held_at && !client.said.is_at_gate) {
      look = std::min(look, known.lends ? kLentLook : kFirstLook);
      continue;
    }
    if (known.waits_since == Time{}) known.waits_since = now;
    const bool may_enter = std::ranges::all_of(gpus_, [&](const GpuPartitions& gpu) {
      return !gpu.concerns(client) || gpu.may_enter(client.tenant);
    });
    if (!may_enter && now - known.waits_since < (known.lends ? kLongestReturn : kLongestStart)) {
      look = kBusyLook;
      continue;
    }
    known.is_held = known.lends = false;
    if (!stays_closed(client.process)) ShimHost::open_gate(*client.slot);
  }
  return look;
}

bool Spatial::is_held(const ProcessId& process) const {
  const auto known = known_.find(process);
  return !gpus_.empty() && known != known_.end() && known->second.is_held;
}

bool Spatial::lends(const ProcessId& process) const {
  const auto known = known_.find(process);
  return is_held(process) && known->second.lends;
}

const GpuPartitions* Spatial::find(uint32_t index) const {
  const auto at =
      std::ranges::find(gpus_, index, [](const GpuPartitions& gpu) { return gpu.gpu().index; });
  return at == gpus_.end() ? nullptr : &*at;
}

TenantPartition Spatial::partition(uint32_t tenant, uint32_t index) const {
  const GpuPartitions* const gpu = find(index);
  return gpu == nullptr ? TenantPartition{} : gpu->partition(tenant);
}

}  // namespace gpushare
