// SPDX-License-Identifier: Apache-2.0
// A pack is a set of tenants that share one partition. Here is what a pack needs, and how tenants
// are put together so that all packs need few SM groups. Pure; called by the policy `slo`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gpushare {

struct Pack {
  std::vector<uint32_t> members;  // places in the call, ascending; at least one
  uint32_t demand = 0;            // groups
};

// Functions that say what tenants need. Tenants are named by their places in the call.
struct PackNeeds {
  static constexpr uint32_t kNever = UINT32_MAX;

  // The fewest SM groups that guarantee the target when the partition is not shared; if none are
  // enough, the most that the tenant can have. Never kNever.
  std::function<uint32_t(uint32_t)> apart;
  // The fewest groups that are likely to meet the target, for a tenant that is alone while others
  // share.
  std::function<uint32_t(uint32_t)> alone;
  // The same for two or more tenants in one partition; kNever if one of them misses its target
  // however many groups there are.
  std::function<uint32_t(std::span<const uint32_t>)> together;
  std::function<bool(uint32_t)> can_share;
  // The member whose target makes its pack need as much as it does. kNever if no target does,
  // because the pack has more work than all groups can do.
  std::function<uint32_t(std::span<const uint32_t>)> binding{};
  // Says whether packs keep something to spare from now on, or just meet their targets. Without
  // this function they just meet them.
  std::function<void(bool)> spare{};
  // Gives a tenant's target up by so many notches from now on, 0 to GiveUp::kMostNotches. Without
  // this function no target is given up.
  std::function<void(uint32_t, int)> give_up{};
};

using PackList = std::vector<Pack>;

constexpr size_t kMostPairedPacks = 32;  // every pair of them is tried

uint64_t total_demand(const PackList& packs);
// Sort by the first members, and by what the packs need.
void sort_by_member(PackList& packs);
void sort_by_demand(PackList& packs);
uint32_t demand_of(std::span<const uint32_t> members, const PackNeeds& needs);
std::vector<uint32_t> members_of_both(const Pack& one, const Pack& other);

// Puts the two packs together that save most, again and again, until all need no more than `enough`
// groups or nothing is saved. While there are more than kMostPairedPacks packs, it takes those that
// need least, without trying every pair. The result is sorted by first members.
PackList merged(PackList packs, uint64_t enough, const PackNeeds& needs);

// Moves each tenant that is better off in another pack, or alone, there: pairs that were put
// together one after the other can leave a tenant where it costs much. With more than
// kMostPairedPacks tenants it changes nothing. The result is sorted by first members.
PackList improved(PackList packs, const PackNeeds& needs);

}  // namespace gpushare
