// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/past.h"

#include <algorithm>

#include "shmctl/plane/fields.h"

namespace gpushare {
namespace {

constexpr uint16_t kUnknownSample = 0xFFFF;

uint64_t share_everywhere(const TenantRecord& tenant, const PlaneSnapshot& snapshot) {
  uint64_t sum = 0;
  for (const GpuRecord& gpu : snapshot.gpus) {
    if (gpu.index >= kMaxGpus) continue;
    const uint32_t share = tenant.gpu[gpu.index].share_permille;
    if (share != kUnknown32) sum += share;
  }
  return sum;
}

void add(PastSecond& second, Ink ink, uint32_t permille) {
  second.is_known = true;
  uint16_t& sum = second.permille[ink];
  sum = static_cast<uint16_t>(std::min<uint32_t>(1000, sum + permille));
}

}  // namespace

Ink Past::ink_of(const TenantRecord& tenant) const {
  const auto found = std::ranges::find(owners_, text_in(tenant.name));
  return found == owners_.end() ? kOthers : static_cast<Ink>(found - owners_.begin());
}

// A tenant keeps its colour as long as it exists, and beyond that until another one needs it.
void Past::give_inks(const PlaneSnapshot& snapshot) {
  struct Wish {
    uint64_t share;
    std::string_view name;
  };
  std::vector<Wish> wishes;
  std::array<bool, kInks> is_taken{};
  for (const auto& [slot, tenant] : snapshot.tenants) {
    if (const Ink ink = ink_of(tenant); ink != kOthers) {
      is_taken[ink] = tenant.process_count > 0 || owners_[ink] == "default";
      continue;
    }
    if (tenant.process_count == 0) continue;
    wishes.push_back({share_everywhere(tenant, snapshot), text_in(tenant.name)});
  }
  std::ranges::sort(wishes, [](const Wish& a, const Wish& b) {
    return a.share != b.share ? a.share > b.share : a.name < b.name;
  });
  auto wish = wishes.begin();
  // First the colours that nobody ever had, so that what has just ended keeps its own.
  for (const bool may_be_old : {false, true})
    for (Ink ink = 0; ink < kInks && wish != wishes.end(); ++ink)
      if (!is_taken[ink] && (may_be_old || owners_[ink].empty())) {
        owners_[ink] = std::string((wish++)->name);
        is_taken[ink] = true;
      }
}

PastSecond Past::now_on(const PlaneSnapshot& snapshot, const GpuRecord& gpu) const {
  PastSecond second{.is_known = gpu.process_count == 0, .permille = {}};
  for (const auto& [slot, tenant] : snapshot.tenants) {
    const uint32_t share = tenant.gpu[gpu.index].share_permille;
    if (share != kUnknown32 && (share != 0 || tenant.process_count != 0))
      add(second, ink_of(tenant), share);
  }
  return second;
}

void Past::update(const PlaneSnapshot& snapshot, Time now) {
  constexpr Nanos kSecond = std::chrono::seconds(1);
  give_inks(snapshot);
  // Seconds that have begun since the last one, of which the processes know all but the newest.
  size_t missing = has_begun_ ? static_cast<size_t>(std::max<int64_t>(0, (now - newest_) / kSecond))
                              : size_t{kHistory};
  newest_ = has_begun_ ? newest_ + static_cast<int64_t>(missing) * kSecond : now;
  has_begun_ = true;
  missing = std::min(missing, kSeconds);

  // The seconds that each GPU lacks, the oldest first.
  std::array<std::vector<PastSecond>, kMaxGpus> lacking;
  for (auto& seconds : lacking) seconds.resize(missing);
  if (missing > 1)
    for (const auto& [slot, process] : snapshot.processes) {
      const auto tenant = std::ranges::lower_bound(snapshot.tenants, process.tenant, {},
                                                   &Numbered<TenantRecord>::slot);
      const bool is_known = tenant != snapshot.tenants.end() && tenant->slot == process.tenant;
      const Ink ink = is_known ? ink_of(tenant->record) : kOthers;
      for (size_t ago = 1; ago < std::min<size_t>(missing, kHistory) && process.gpu < kMaxGpus;
           ++ago)
        if (const uint16_t sample = process.history_permille[kHistory - 1 - ago];
            sample != kUnknownSample)
          add(lacking[process.gpu][missing - 1 - ago], ink, sample);
    }
  for (const GpuRecord& gpu : snapshot.gpus) {
    if (gpu.index >= kMaxGpus) continue;
    std::deque<PastSecond>& seconds = gpus_[gpu.index];
    seconds.insert(seconds.end(), lacking[gpu.index].begin(), lacking[gpu.index].end());
    if (!seconds.empty()) seconds.back() = now_on(snapshot, gpu);
    while (seconds.size() > kSeconds) seconds.pop_front();
  }
}

}  // namespace gpushare
