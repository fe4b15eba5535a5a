// SPDX-License-Identifier: Apache-2.0
// Packs: tenants that share one set of SMs, what they need together, and how to put them together
// so that all need little. Pure.
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

// What tenants need, by their places in the call.
struct PackNeeds {
  static constexpr uint32_t kNever = UINT32_MAX;

  // Groups to meet its target where each has a set of its own, so that it surely does; what it can
  // have at most when none are enough. Never kNever.
  std::function<uint32_t(uint32_t)> apart;
  // The same where others share, as far as is likely.
  std::function<uint32_t(uint32_t)> alone;
  // The same for two and more together; kNever: however many there are, one misses its target.
  std::function<uint32_t(std::span<const uint32_t>)> together;
  std::function<bool(uint32_t)> can_share;
  // Of members that share, or one alone: who makes them need so much as they do. kNever: nobody's
  // target, there is more to do than all groups can.
  std::function<uint32_t(std::span<const uint32_t>)> binding{};
  // From now on those that share have something to spare, or just meet their targets. Where there
  // is no such function, they just do.
  std::function<void(bool)> spare{};
  // From now on its target is given up by so many notches, 0 to GiveUp::kMostNotches. Where there
  // is no such function no target is given up.
  std::function<void(uint32_t, int)> give_up{};
};

using PackList = std::vector<Pack>;

constexpr size_t kMostPairedPacks = 32;  // every pair of them is tried

uint64_t total_demand(const PackList& packs);
// By the first members, or by what they need.
void sort_by_member(PackList& packs);
void sort_by_demand(PackList& packs);
uint32_t demand_of(std::span<const uint32_t> members, const PackNeeds& needs);
std::vector<uint32_t> members_of_both(const Pack& one, const Pack& other);

// Two put together, those that save most, again and again, until no more than `enough` is needed or
// nothing is saved. Of more than kMostPairedPacks first those that need least, without trying every
// pair. By first members.
PackList merged(PackList packs, uint64_t enough, const PackNeeds& needs);

// Pairs put together one after the other can leave one where it costs much: whoever is better off
// in another pack, or alone, goes there. Of more than kMostPairedPacks tenants nobody does. By
// first members.
PackList improved(PackList packs, const PackNeeds& needs);

}  // namespace gpushare
