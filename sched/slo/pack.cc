// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/pack.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace gpushare {

uint64_t total_demand(const PackList& packs) {
  return std::accumulate(packs.begin(), packs.end(), uint64_t{0},
                         [](uint64_t sum, const Pack& pack) { return sum + pack.demand; });
}

void sort_by_demand(PackList& packs) {
  std::ranges::sort(packs, {},
                    [](const Pack& pack) { return std::pair(pack.demand, pack.members.front()); });
}

void sort_by_member(PackList& packs) {
  std::ranges::sort(packs, {}, [](const Pack& pack) { return pack.members.front(); });
}

std::vector<uint32_t> members_of_both(const Pack& one, const Pack& other) {
  std::vector<uint32_t> members;
  members.reserve(one.members.size() + other.members.size());
  std::ranges::merge(one.members, other.members, std::back_inserter(members));
  return members;
}

uint32_t demand_of(std::span<const uint32_t> members, const PackNeeds& needs) {
  return members.size() == 1 ? needs.alone(members[0]) : needs.together(members);
}

namespace {

using Packs = PackList;

constexpr size_t kPartners =
    4;  // with so many each is tried, where there are too many for all pairs
constexpr int kMostRefused = 64;

Pack pack_of(std::vector<uint32_t> members, const PackNeeds& needs) {
  Pack pack{std::move(members), 0};
  pack.demand = demand_of(pack.members, needs);
  return pack;
}

Pack both(const Pack& one, const Pack& other, const PackNeeds& needs) {
  return pack_of(members_of_both(one, other), needs);
}

// Negative when two packs together need more than apart, or cannot be together.
int64_t saved_by(const Pack& one, const Pack& other, const Pack& merged) {
  if (merged.demand == PackNeeds::kNever) return -1;
  return int64_t{one.demand} + other.demand - merged.demand;
}

class Merger {
 public:
  Merger(Packs packs, const PackNeeds& needs) : packs_(std::move(packs)), needs_(needs) {
    merge_smallest();
    for (size_t i = 0; i < packs_.size() && i < kMostPairedPacks; ++i) {
      together_.emplace_back();
      for (size_t j = 0; j < i; ++j) together_[i].push_back(both(packs_[i], packs_[j], needs_));
    }
  }

  Packs merge(uint64_t enough) {
    while (total_demand(packs_) > enough && merge_best()) {
    }
    sort_by_member(packs_);
    return std::move(packs_);
  }

 private:
  // There are too many packs to try every pair: those that need least are tried first, each with
  // the next ones.
  void merge_smallest() {
    if (packs_.size() <= kMostPairedPacks) return;
    sort_by_demand(packs_);
    Packs whole;  // packs that saved nothing with any other
    int refused = 0;
    while (packs_.size() > 1 && packs_.size() + whole.size() > kMostPairedPacks &&
           refused < kMostRefused) {
      const Pack first = std::move(packs_.front());
      packs_.erase(packs_.begin());
      bool is_merged = false;
      for (size_t i = 0; i < packs_.size() && i < kPartners && !is_merged; ++i) {
        Pack merged = both(first, packs_[i], needs_);
        if (saved_by(first, packs_[i], merged) <= 0) continue;
        packs_.erase(packs_.begin() + static_cast<std::ptrdiff_t>(i));
        packs_.insert(std::ranges::upper_bound(packs_, merged.demand, {}, &Pack::demand),
                      std::move(merged));
        is_merged = true;
      }
      if (is_merged) continue;
      ++refused;
      whole.push_back(first);
    }
    std::ranges::move(whole, std::back_inserter(packs_));
  }
  bool merge_best() {
    int64_t most = 0;
    size_t first = 0, second = 0;
    for (size_t i = 0; i < together_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const int64_t saved = saved_by(packs_[i], packs_[j], together_[i][j]);
        if (saved <= most) continue;
        most = saved;
        first = i;
        second = j;
      }
    }
    if (most == 0) return false;
    packs_[second] = together_[first][second];
    remove(first);
    for (size_t i = 0; i < together_.size(); ++i) {
      if (i == second) continue;
      together_[std::max(i, second)][std::min(i, second)] = both(packs_[i], packs_[second], needs_);
    }
    return true;
  }
  void remove(size_t place) {
    const auto at = static_cast<std::ptrdiff_t>(place);
    packs_.erase(packs_.begin() + at);
    together_.erase(together_.begin() + at);
    for (size_t i = place; i < together_.size(); ++i) together_[i].erase(together_[i].begin() + at);
  }

  Packs packs_;
  const PackNeeds& needs_;
  std::vector<Packs> together_;  // [i][j], j < i, of the first packs
};

// Moves one member of a pack of several into another pack, or into one of its own.
struct Transfer {
  int64_t saved = 0;
  size_t from = 0, to = 0;  // `to` is the number of packs when it gets one of its own
  Pack left, joined;
};

// Returns the move that saves most; its `saved` is 0 when no move saves anything.
Transfer best_transfer(const Packs& packs, const PackNeeds& needs) {
  Transfer best;
  for (size_t from = 0; from < packs.size(); ++from) {
    if (packs[from].members.size() < 2) continue;
    for (const uint32_t member : packs[from].members) {
      std::vector<uint32_t> others = packs[from].members;
      std::erase(others, member);
      const Pack left = pack_of(std::move(others), needs);
      if (left.demand >= packs[from].demand) continue;
      for (size_t to = 0; to <= packs.size(); ++to) {
        if (to == from) continue;
        const Pack before = to < packs.size() ? packs[to] : Pack{};
        Pack joined = both(before, {{member}, 0}, needs);
        if (joined.demand == PackNeeds::kNever) continue;
        const int64_t saved =
            int64_t{packs[from].demand} + before.demand - left.demand - joined.demand;
        if (saved > best.saved) best = {saved, from, to, left, std::move(joined)};
      }
    }
  }
  return best;
}

}  // namespace

Packs merged(Packs packs, uint64_t enough, const PackNeeds& needs) {
  if (total_demand(packs) <= enough) {
    sort_by_member(packs);
    return packs;
  }
  return Merger(std::move(packs), needs).merge(enough);
}

Packs improved(Packs packs, const PackNeeds& needs) {
  size_t tenants = 0;
  for (const Pack& pack : packs) tenants += pack.members.size();
  for (size_t i = 0; i < kMostPairedPacks && tenants <= kMostPairedPacks; ++i) {
    Transfer best = best_transfer(packs, needs);
    if (best.saved <= 0) break;
    packs.resize(std::max(packs.size(), best.to + 1));
    packs[best.from] = std::move(best.left);
    packs[best.to] = std::move(best.joined);
  }
  sort_by_member(packs);
  return packs;
}

}  // namespace gpushare
