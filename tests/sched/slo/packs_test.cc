// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/pack_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace gpushare {
namespace {

using Places = std::vector<uint32_t>;

Places numbered(uint32_t count) {
  Places ids(count);
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

uint32_t total(const std::vector<Pack>& packs) {
  return std::accumulate(packs.begin(), packs.end(), 0U,
                         [](uint32_t sum, const Pack& pack) { return sum + pack.demand; });
}

// By a rule for any number of tenants, one included.
PackNeeds needs_by(std::function<uint32_t(std::span<const uint32_t>)> rule) {
  return {.apart = [rule](uint32_t place) { return rule(std::span(&place, 1)); },
          .alone = [rule](uint32_t place) { return rule(std::span(&place, 1)); },
          .together = rule,
          .can_share = [](uint32_t) { return true; }};
}

// Together the widest, and one more for every `share` of them; not more than `most` together.
PackNeeds widest_of(std::vector<uint32_t> widths, size_t share = 2, size_t most = 100) {
  return needs_by([widths = std::move(widths), share, most](std::span<const uint32_t> members) {
    if (members.size() > most) return PackNeeds::kNever;
    uint32_t widest = 0;
    for (const uint32_t place : members) widest = std::max(widest, widths.at(place));
    return widest + static_cast<uint32_t>(members.size() / share);
  });
}

TEST(PackHistory, NobodySharesWhileThereIsEnough) {
  PackHistory packs;
  const auto made = packs.decide(numbered(3), 15, widest_of({5, 5, 5}));
  ASSERT_EQ(made.size(), 3U);
  for (uint32_t place = 0; place < 3; ++place) EXPECT_EQ(made[place].members, Places{place});
}

// The first two save most together. What fits is the second with the other two.
PackNeeds where_pairs_mislead() {
  return needs_by([](std::span<const uint32_t> members) -> uint32_t {
    uint32_t places = 0;
    for (const uint32_t place : members) places |= 1u << place;
    if (places == 0b0011) return 7;
    if (places == 0b1100) return 9;
    if (places == 0b1110) return 9;
    return static_cast<uint32_t>(5 * members.size());
  });
}

TEST(PackHistory, WhoSavesMoreElsewhereGoesThereWhereThatMakesAllFit) {
  PackHistory packs;
  const auto made = packs.decide(numbered(4), 14, where_pairs_mislead());
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].members, Places{0});
  EXPECT_EQ(made[1].members, (Places{1, 2, 3}));
}

TEST(PackHistory, OnlyThoseGoElsewhereWhoSaveMuchThereForAWhile) {
  uint32_t three = 20;
  PackNeeds needs = where_pairs_mislead();
  needs.together = [&, rule = needs.together](std::span<const uint32_t> members) {
    return members.size() == 3 && members[0] == 1 ? three : rule(members);
  };
  PackHistory packs;
  const auto first = [&] { return packs.decide(numbered(4), 16, needs)[0].members; };
  EXPECT_EQ(first(), (Places{0, 1}));
  three = 10;  // saves one
  for (int i = 0; i < 2 * PackHistory::kPatience; ++i) EXPECT_EQ(first(), (Places{0, 1})) << i;
  three = 9;
  for (int i = 1; i < PackHistory::kPatience; ++i) EXPECT_EQ(first(), (Places{0, 1})) << i;
  EXPECT_EQ(first(), Places{0});
}

TEST(PackHistory, AllShareWhoSaveAnythingWhenNotAllFit) {
  const PackNeeds needs = needs_by([](std::span<const uint32_t> members) -> uint32_t {
    const auto even = std::ranges::count_if(members, [](uint32_t place) { return place % 2 == 0; });
    return 3 + static_cast<uint32_t>(even) * static_cast<uint32_t>(std::ssize(members) - even) * 9;
  });
  EXPECT_EQ(PackHistory().decide(numbered(6), 18, needs).size(), 6U);
  const auto made = PackHistory().decide(numbered(6), 17, needs);
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].members, (Places{0, 2, 4}));
  EXPECT_EQ(total(made), 6U);
}

// It costs the others more than what it needs alone.
TEST(PackHistory, WhoIsBetterOffAloneLeaves) {
  bool is_sensitive = false;
  const PackNeeds needs = needs_by([&](std::span<const uint32_t> members) -> uint32_t {
    const bool has_it = std::ranges::find(members, 1U) != members.end();
    return members.size() == 1 ? 5 : has_it && is_sensitive ? 14 : 6;
  });
  PackHistory packs;
  ASSERT_EQ(packs.decide(numbered(4), 15, needs).size(), 1U);
  is_sensitive = true;
  for (int i = 1; i < PackHistory::kPatience; ++i)
    EXPECT_EQ(packs.decide(numbered(4), 15, needs).size(), 1U) << i;
  const auto made = packs.decide(numbered(4), 15, needs);
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[1].members, Places{1});
}

// Targets that make 3 and 2 groups wider; a notch given up makes that two less.
struct Demanding {
  std::vector<int> notches = std::vector<int>(5);
  bool has_spare = true;

  PackNeeds needs() {
    PackNeeds needs = needs_by([this](std::span<const uint32_t> members) {
      uint32_t wide = 3;
      for (const uint32_t place : members)
        wide = std::max(wide, static_cast<uint32_t>(std::max(wish(place), 0)));
      return wide + (members.size() > 1 && has_spare);
    });
    needs.binding = [this](std::span<const uint32_t> members) {
      return *std::ranges::max_element(members, {}, [this](uint32_t place) { return wish(place); });
    };
    needs.spare = [this](bool has) { has_spare = has; };
    needs.give_up = [this](uint32_t place, int to) { notches[place] = to; };
    return needs;
  }
  int wish(uint32_t place) const { return (place == 2 ? 9 : 5) - 2 * notches[place]; }
};

TEST(PackHistory, GivesUpWhatIsToSpareThenTheTargetThatCostsMost) {
  Demanding demanding;
  PackHistory packs;
  packs.decide(numbered(5), 10, demanding.needs());
  EXPECT_TRUE(demanding.has_spare);
  packs.decide(numbered(5), 9, demanding.needs());
  EXPECT_FALSE(demanding.has_spare);
  EXPECT_EQ(demanding.notches, std::vector<int>(5));
  const auto made = packs.decide(numbered(5), 6, demanding.needs());
  EXPECT_LE(total(made), 6U);
  EXPECT_EQ(demanding.notches, (std::vector<int>{0, 0, 2, 0, 0}));
  packs.decide(numbered(5), 10, demanding.needs());
  EXPECT_EQ(demanding.notches, std::vector<int>(5)) << "there is enough again";
  EXPECT_TRUE(demanding.has_spare);
}

TEST(PackHistory, WhoCannotShareGivesUpNothing) {
  Demanding demanding;
  PackNeeds needs = demanding.needs();
  needs.can_share = [](uint32_t place) { return place != 2; };
  needs.apart = needs.alone = [&](uint32_t place) { return place == 2 ? 9U : 5U; };
  needs.together = [rule = needs.together](std::span<const uint32_t> members) {
    const bool has_it = std::ranges::find(members, 2U) != members.end();
    return has_it ? PackNeeds::kNever : rule(members);
  };
  PackHistory packs;
  EXPECT_LE(total(packs.decide(numbered(5), 13, needs)), 13U);
  EXPECT_EQ(demanding.notches[2], 0);
}

TEST(PackHistory, WhatGivingUpDoesNotHelpIsNotTriedForEver) {
  Demanding demanding;
  int asked = 0;
  PackNeeds needs = demanding.needs();
  needs.apart = needs.alone = [](uint32_t) { return 9U; };
  needs.together = [&](std::span<const uint32_t>) { return ++asked, 9U; };
  const auto made = PackHistory().decide(numbered(5), 6, needs);
  EXPECT_EQ(made.size(), 1U);
  EXPECT_LT(asked, 10'000);
  needs.binding = [](std::span<const uint32_t>) { return PackNeeds::kNever; };
  EXPECT_EQ(PackHistory().decide(numbered(5), 6, needs).size(), 1U);
}

TEST(PackHistory, MoreTenantsThanGroupsHaveAPlaceEach) {
  PackHistory packs;
  const auto made = packs.decide(numbered(40), 15, widest_of(Places(40, 1), 5, 8));
  EXPECT_LE(total(made), 15U);
  size_t members = 0;
  for (const Pack& pack : made) members += pack.members.size();
  EXPECT_EQ(members, 40U);
}

TEST(PackHistory, WhoCannotShareStaysAlone) {
  PackHistory packs;
  const auto needs = needs_by([](std::span<const uint32_t> members) {
    const bool has_loop = std::ranges::find(members, 0U) != members.end();
    return has_loop && members.size() > 1 ? PackNeeds::kNever : 8U;
  });
  const auto made = packs.decide(numbered(3), 15, needs);
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].members, Places{0});
  EXPECT_EQ(made[1].members, (Places{1, 2}));
}

TEST(PackHistory, WhoCannotShareDoesWhenThereAreMoreSetsThanGroupsAndStaysThere) {
  PackHistory packs;
  const auto needs = [](uint32_t shift) {
    return needs_by([shift](std::span<const uint32_t> members) {
      return members.size() > 1 ? PackNeeds::kNever : 3 + (members[0] + shift) % 3;
    });
  };
  const auto made = packs.decide(numbered(20), 15, needs(0));
  ASSERT_EQ(made.size(), 15U);
  for (uint32_t shift = 1; shift < 6; ++shift) {
    const auto again = packs.decide(numbered(20), 15, needs(shift));
    ASSERT_EQ(again.size(), made.size());
    for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(again[i].members, made[i].members);
  }
}

TEST(PackHistory, WhoCannotShareAnyMoreLeavesAndTheOthersStay) {
  PackHistory packs;
  const PackNeeds before = widest_of({6, 6, 6, 6}, 4);
  ASSERT_EQ(packs.decide(numbered(4), 8, before).size(), 1U);
  PackNeeds after = before;
  after.can_share = [](uint32_t place) { return place != 2; };
  after.together = [rule = before.together](std::span<const uint32_t> members) {
    const bool has_it = std::ranges::find(members, 2U) != members.end();
    return has_it ? PackNeeds::kNever : rule(members);
  };
  const auto made = packs.decide(numbered(4), 8, after);
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].members, (Places{0, 1, 3}));
}

TEST(PackHistory, WhoSharesGoesOnToShareWhileItIsEnough) {
  PackHistory packs;
  const auto before = packs.decide(numbered(4), 10, widest_of({4, 4, 4, 1}));
  const auto other = packs.decide(numbered(4), 10, widest_of({3, 4, 4, 1}));
  ASSERT_EQ(before.size(), other.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].members, other[i].members);
}

TEST(PackHistory, SharingEndsWhenAllHaveFittedAloneForAWhile) {
  PackHistory packs;
  ASSERT_EQ(packs.decide(numbered(3), 10, widest_of({4, 4, 4})).size(), 1U);
  for (int i = 1; i < PackHistory::kCalm; ++i)
    ASSERT_EQ(packs.decide(numbered(3), 10, widest_of({3, 3, 3})).size(), 1U) << i;
  EXPECT_EQ(packs.decide(numbered(3), 10, widest_of({3, 3, 3})).size(), 3U);
}

TEST(PackHistory, WhatWasPutTogetherForOtherLoadsIsTakenApartWhenItIsInTheWay) {
  PackHistory packs;
  ASSERT_EQ(packs.decide(numbered(4), 9, widest_of({4, 4, 1, 1}))[0].members, (Places{0, 1, 2}));
  // 0 and 1 now need 20 together; each fits with another.
  const auto needs = needs_by([](std::span<const uint32_t> members) {
    const bool has_both = std::ranges::count_if(members, [](uint32_t i) { return i < 2; }) == 2;
    return has_both ? 20U : 4U;
  });
  const auto made = packs.decide(numbered(4), 9, needs);
  EXPECT_EQ(made.size(), 2U);
  EXPECT_LE(total(made), 9U);
}

TEST(PackHistory, EveryTenantIsInOnePackWhateverComes) {
  std::mt19937_64 random(3);
  for (int life = 0; life < 200; ++life) {
    PackHistory packs;
    Places ids;
    for (int round = 0; round < 20; ++round) {
      if (random() % 3 == 0) ids.push_back(static_cast<uint32_t>(1000 + random() % 1000));
      if (random() % 4 == 0 && !ids.empty()) ids.erase(ids.begin() + random() % ids.size());
      std::ranges::sort(ids);
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      const uint64_t salt = random();
      auto needs = needs_by([&](std::span<const uint32_t> members) {
        uint64_t hash = salt;
        for (const uint32_t place : members) hash = (hash ^ ids.at(place)) * 0x9E3779B97F4A7C15ULL;
        if (members.size() > 1 && hash >> 62 == 0) return PackNeeds::kNever;
        return 1 + static_cast<uint32_t>(hash >> 60);
      });
      needs.can_share = [&](uint32_t place) { return (ids.at(place) ^ salt) % 8 != 0; };
      const auto available = 1 + static_cast<uint32_t>(salt % 12);
      const auto made = packs.decide(ids, available, needs, salt % 2 == 0);
      ASSERT_LE(made.size(), available);
      Places seen;
      for (const Pack& pack : made) {
        ASSERT_NE(pack.demand, PackNeeds::kNever);
        ASSERT_TRUE(std::ranges::is_sorted(pack.members));
        seen.insert(seen.end(), pack.members.begin(), pack.members.end());
      }
      std::ranges::sort(seen);
      ASSERT_EQ(seen, numbered(static_cast<uint32_t>(ids.size())));
    }
  }
}

}  // namespace
}  // namespace gpushare
