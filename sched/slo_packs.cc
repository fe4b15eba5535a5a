// SPDX-License-Identifier: Apache-2.0
#include "sched/slo_packs.h"

#include <algorithm>
#include <numeric>

namespace gpushare {
namespace {

using Packs = std::vector<SloPack>;

uint64_t total(const Packs& packs) {
  return std::accumulate(packs.begin(), packs.end(), uint64_t{0},
                         [](uint64_t sum, const SloPack& pack) { return sum + pack.demand; });
}

Packs each_alone(size_t count, const SloPacks::Needs& needs) {
  Packs packs;
  for (uint32_t place = 0; place < count; ++place)
    packs.push_back({{place}, needs(std::span(&place, 1))});
  return packs;
}

SloPack both(const SloPack& one, const SloPack& other, const SloPacks::Needs& needs) {
  SloPack pack;
  std::ranges::merge(one.members, other.members, std::back_inserter(pack.members));
  pack.demand = needs(pack.members);
  return pack;
}

constexpr size_t kMostTried = 32;  // packs, every pair of them: some 0.5 ms

// Puts together what saves most, until `available` is enough or nothing is saved any more.
class Merger {
 public:
  Merger(Packs packs, const SloPacks::Needs& needs) : packs_(std::move(packs)), needs_(needs) {
    merge_smallest();
    for (size_t i = 0; i < packs_.size(); ++i) {
      together_.emplace_back();
      for (size_t j = 0; j < i; ++j) together_[i].push_back(both(packs_[i], packs_[j], needs_));
    }
  }

  Packs until(uint32_t available) {
    while (total(packs_) > available && merge_best()) {
    }
    std::ranges::sort(packs_, {}, [](const SloPack& pack) { return pack.members.front(); });
    return std::move(packs_);
  }

 private:
  // So many tenants that not every pair can be tried: first the two that need least, again and
  // again, by pairs that can share.
  void merge_smallest() {
    if (packs_.size() <= kMostTried) return;
    std::ranges::stable_sort(packs_, {}, &SloPack::demand);
    Packs whole;  // that could not share with the next
    while (packs_.size() > 1 && packs_.size() + whole.size() > kMostTried) {
      SloPack merged = both(packs_[0], packs_[1], needs_);
      if (merged.demand == SloPacks::kNever) {
        whole.push_back(std::move(packs_[0]));
        packs_.erase(packs_.begin());
        continue;
      }
      packs_.erase(packs_.begin(), packs_.begin() + 2);
      packs_.insert(std::ranges::upper_bound(packs_, merged.demand, {}, &SloPack::demand),
                    std::move(merged));
    }
    std::ranges::move(whole, std::back_inserter(packs_));
  }
  bool merge_best() {
    int64_t most = 0;
    size_t first = 0, second = 0;
    for (size_t i = 0; i < packs_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (together_[i][j].demand == SloPacks::kNever) continue;
        const int64_t saved = int64_t{packs_[i].demand} + packs_[j].demand - together_[i][j].demand;
        if (saved <= most) continue;
        most = saved;
        first = i;
        second = j;
      }
    }
    if (most == 0) return false;
    packs_[second] = together_[first][second];
    remove(first);
    for (size_t i = 0; i < packs_.size(); ++i) {
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
  const SloPacks::Needs& needs_;
  std::vector<Packs> together_;  // [i][j], j < i
};

}  // namespace

Packs SloPacks::decide(std::span<const uint32_t> ids, uint32_t available, const Needs& needs) {
  Packs alone = each_alone(ids.size(), needs);
  const bool fits_alone = total(alone) <= available;
  fitted_alone_ = fits_alone ? fitted_alone_ + 1 : 0;
  if (fits_alone && (shared_.empty() || fitted_alone_ >= kCalm)) {
    shared_.clear();
    return alone;
  }
  Packs packs = kept(ids, needs);
  if (total(packs) > available) {
    packs = Merger(std::move(packs), needs).until(available);
    // What was put together for other loads may be in the way.
    if (Packs anew = Merger(std::move(alone), needs).until(available);
        total(packs) > available && total(anew) < total(packs))
      packs = std::move(anew);
  }
  keep(ids, packs);
  return packs;
}

// As it was, without those that have ended or cannot share any more; who has come, alone.
Packs SloPacks::kept(std::span<const uint32_t> ids, const Needs& needs) const {
  std::vector<SloPack> packs;
  std::vector<bool> is_in(ids.size());
  for (const std::vector<uint32_t>& sharers : shared_) {
    SloPack pack;
    for (uint32_t place = 0; place < ids.size(); ++place)
      if (std::ranges::find(sharers, ids[place]) != sharers.end()) pack.members.push_back(place);
    if (pack.members.size() < 2) continue;
    pack.demand = needs(pack.members);
    if (pack.demand == kNever) continue;
    for (const uint32_t place : pack.members) is_in[place] = true;
    packs.push_back(std::move(pack));
  }
  for (uint32_t place = 0; place < ids.size(); ++place)
    if (!is_in[place]) packs.push_back({{place}, needs(std::span(&place, 1))});
  std::ranges::sort(packs, {}, [](const SloPack& pack) { return pack.members.front(); });
  return packs;
}

void SloPacks::keep(std::span<const uint32_t> ids, const Packs& packs) {
  shared_.clear();
  for (const SloPack& pack : packs) {
    if (pack.members.size() < 2) continue;
    std::vector<uint32_t>& sharers = shared_.emplace_back();
    for (const uint32_t place : pack.members) sharers.push_back(ids[place]);
  }
}

}  // namespace gpushare
