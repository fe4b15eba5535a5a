// SPDX-License-Identifier: Apache-2.0
#include "sched/slo_packs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpushare {
namespace {

using Packs = std::vector<SloPack>;

constexpr size_t kMostTried = 32;  // packs, every pair of them: some 0.5 ms
constexpr size_t kPartners = 4;    // that one is tried with where there are more
constexpr int kMostRefused = 64;
constexpr uint32_t kWorth = 2;  // groups saved, that make it worth to move tenants which fit

uint64_t total(const Packs& packs) {
  return std::accumulate(packs.begin(), packs.end(), uint64_t{0},
                         [](uint64_t sum, const SloPack& pack) { return sum + pack.demand; });
}

void sort_by_demand(Packs& packs) {
  std::ranges::sort(
      packs, {}, [](const SloPack& pack) { return std::pair(pack.demand, pack.members.front()); });
}

void sort_by_member(Packs& packs) {
  std::ranges::sort(packs, {}, [](const SloPack& pack) { return pack.members.front(); });
}

Packs each_alone(size_t count, const PackNeeds& needs) {
  Packs packs;
  packs.reserve(count);
  for (uint32_t place = 0; place < count; ++place) packs.push_back({{place}, needs.alone(place)});
  return packs;
}

std::vector<uint32_t> members_of_both(const SloPack& one, const SloPack& other) {
  std::vector<uint32_t> members;
  std::ranges::merge(one.members, other.members, std::back_inserter(members));
  return members;
}

SloPack pack_of(std::vector<uint32_t> members, const PackNeeds& needs) {
  SloPack pack{std::move(members), 0};
  pack.demand =
      pack.members.size() == 1 ? needs.alone(pack.members[0]) : needs.together(pack.members);
  return pack;
}

SloPack both(const SloPack& one, const SloPack& other, const PackNeeds& needs) {
  return pack_of(members_of_both(one, other), needs);
}

// Negative: it costs more than they do apart, or cannot be.
int64_t saved_by(const SloPack& one, const SloPack& other, const SloPack& merged) {
  if (merged.demand == PackNeeds::kNever) return -1;
  return int64_t{one.demand} + other.demand - merged.demand;
}

// Puts together what saves most, until `available` is enough or nothing is saved any more.
class Merger {
 public:
  Merger(Packs packs, const PackNeeds& needs) : packs_(std::move(packs)), needs_(needs) {
    merge_smallest();
    for (size_t i = 0; i < packs_.size() && i < kMostTried; ++i) {
      together_.emplace_back();
      for (size_t j = 0; j < i; ++j) together_[i].push_back(both(packs_[i], packs_[j], needs_));
    }
  }

  Packs until(uint32_t available) {
    while (total(packs_) > available && merge_best()) {
    }
    sort_by_member(packs_);
    return std::move(packs_);
  }

 private:
  // So many that not every pair can be tried: first those that need least, with one of the next.
  void merge_smallest() {
    if (packs_.size() <= kMostTried) return;
    sort_by_demand(packs_);
    Packs whole;  // that saved nothing with any
    int refused = 0;
    while (packs_.size() > 1 && packs_.size() + whole.size() > kMostTried &&
           refused < kMostRefused) {
      const SloPack first = std::move(packs_.front());
      packs_.erase(packs_.begin());
      bool is_merged = false;
      for (size_t i = 0; i < packs_.size() && i < kPartners && !is_merged; ++i) {
        SloPack merged = both(first, packs_[i], needs_);
        if (saved_by(first, packs_[i], merged) <= 0) continue;
        packs_.erase(packs_.begin() + static_cast<std::ptrdiff_t>(i));
        packs_.insert(std::ranges::upper_bound(packs_, merged.demand, {}, &SloPack::demand),
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

// One member of a pack of several in another one instead.
struct Transfer {
  int64_t saved = 0;
  size_t from = 0, to = 0;
  SloPack left, joined;
};

// What saves most; nothing saved: nothing does.
Transfer best_transfer(const Packs& packs, const PackNeeds& needs) {
  Transfer best;
  for (size_t from = 0; from < packs.size(); ++from) {
    if (packs[from].members.size() < 2) continue;
    for (const uint32_t member : packs[from].members) {
      std::vector<uint32_t> others = packs[from].members;
      std::erase(others, member);
      const SloPack left = pack_of(std::move(others), needs);
      if (left.demand >= packs[from].demand) continue;
      for (size_t to = 0; to < packs.size(); ++to) {
        if (to == from) continue;
        SloPack joined = both(packs[to], {{member}, 0}, needs);
        if (joined.demand == PackNeeds::kNever) continue;
        const int64_t saved =
            int64_t{packs[from].demand} + packs[to].demand - left.demand - joined.demand;
        if (saved > best.saved) best = {saved, from, to, left, std::move(joined)};
      }
    }
  }
  return best;
}

// Putting pairs together one after the other can put one where it costs much. Of more tenants than
// can be tried nothing is.
Packs improved(Packs packs, const PackNeeds& needs) {
  size_t tenants = 0;
  for (const SloPack& pack : packs) tenants += pack.members.size();
  for (size_t i = 0; i < kMostTried && tenants <= kMostTried; ++i) {
    Transfer best = best_transfer(packs, needs);
    if (best.saved <= 0) break;
    packs[best.from] = std::move(best.left);
    packs[best.to] = std::move(best.joined);
  }
  sort_by_member(packs);
  return packs;
}

}  // namespace

Packs SloPacks::decide(std::span<const uint32_t> ids, uint32_t available, const PackNeeds& needs,
                       bool counts) {
  Packs alone = each_alone(ids.size(), needs);
  const bool fits_alone = total(alone) <= available;
  if (!fits_alone) {
    fitted_alone_ = 0;
  } else if (counts) {
    ++fitted_alone_;
  }
  Packs packs = kept(ids, available, needs);
  if (fits_alone && (shared_.empty() || fitted_alone_ >= kCalm || total(packs) > available)) {
    shared_.clear();
    return alone;
  }
  if (total(packs) > available) packs = Merger(std::move(packs), needs).until(available);
  const bool is_review = counts && --until_review_ <= 0;
  if (is_review) until_review_ = kReview;
  // They were put together in pairs, and on what was known then.
  if (const bool fits = total(packs) <= available; !fits || is_review) {
    Packs better = improved(packs, needs);
    const bool is_worth_it = is_review && total(better) + kWorth <= total(packs);
    if (is_worth_it || (!fits && (shared_.empty() || total(better) <= available)))
      packs = std::move(better);
  }
  // What was put together for other loads may be in the way.
  if (total(packs) > available && !shared_.empty())
    if (Packs anew = improved(Merger(std::move(alone), needs).until(available), needs);
        total(anew) <= available)
      packs = std::move(anew);
  force(ids, available, packs);
  keep(ids, packs);
  return packs;
}

// As it was, without those that have ended or cannot share any more; who has come, alone. A pack
// that has too much to do goes on: apart they would need more.
Packs SloPacks::kept(std::span<const uint32_t> ids, uint32_t available,
                     const PackNeeds& needs) const {
  Packs packs;
  std::vector<bool> is_in(ids.size());
  for (const std::vector<uint32_t>& sharers : shared_) {
    SloPack pack;
    for (uint32_t place = 0; place < ids.size(); ++place)
      if (std::ranges::find(sharers, ids[place]) != sharers.end() && needs.can_share(place))
        pack.members.push_back(place);
    if (pack.members.size() < 2) continue;
    pack.demand = needs.together(pack.members);
    if (pack.demand == PackNeeds::kNever) pack.demand = available + 1;
    for (const uint32_t place : pack.members) is_in[place] = true;
    packs.push_back(std::move(pack));
  }
  for (uint32_t place = 0; place < ids.size(); ++place)
    if (!is_in[place]) packs.push_back({{place}, needs.alone(place)});
  sort_by_member(packs);
  return packs;
}

// No more packs than groups, whatever that costs: those that were together before, then the two
// that need least. What they need together is not known: as much as apart.
void SloPacks::force(std::span<const uint32_t> ids, uint32_t available, Packs& packs) const {
  const auto pack_before = [&](const SloPack& pack) {
    return std::ranges::find_if(shared_,
                                [&](const std::vector<uint32_t>& sharers) {
                                  return std::ranges::find(sharers, ids[pack.members.front()]) !=
                                         sharers.end();
                                }) -
           shared_.begin();
  };
  const auto put_together = [&](size_t first, size_t second) {
    SloPack& into = packs[first];
    into.members = members_of_both(into, packs[second]);
    into.demand = std::min(into.demand + packs[second].demand, available);
    packs.erase(packs.begin() + static_cast<std::ptrdiff_t>(second));
  };
  for (size_t i = 0; i < packs.size() && packs.size() > available; ++i) {
    const auto before = pack_before(packs[i]);
    if (before == std::ssize(shared_)) continue;
    for (size_t j = packs.size(); --j > i && packs.size() > available;)
      if (pack_before(packs[j]) == before) put_together(i, j);
  }
  sort_by_demand(packs);
  while (packs.size() > available && packs.size() > 1) {
    put_together(0, 1);
    const auto next = std::ranges::upper_bound(packs.begin() + 1, packs.end(), packs[0].demand, {},
                                               &SloPack::demand);
    std::rotate(packs.begin(), packs.begin() + 1, next);
  }
  sort_by_member(packs);
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
