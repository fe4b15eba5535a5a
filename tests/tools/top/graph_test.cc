// SPDX-License-Identifier: Apache-2.0
// What gpushare-top remembers of each GPU's time, and how it draws it.
#include "tools/top/draw/graph.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

constexpr Time kNewest{std::chrono::seconds(1000)};

// Tenants t0, t1, ... of which each has so many thousandths of GPU 0, measured in the last second,
// and one process with that share in each second that the agent keeps.
PlaneSnapshot with_shares(const std::vector<uint32_t>& shares) {
  PlaneSnapshot snapshot;
  snapshot.gpus.push_back({.index = 0, .process_count = static_cast<uint32_t>(shares.size())});
  for (uint32_t slot = 0; slot < shares.size(); ++slot) {
    Numbered<TenantRecord> tenant{.slot = slot, .record = {}};
    std::strcpy(tenant.record.name, ("t" + std::to_string(slot)).c_str());
    tenant.record.process_count = 1;
    tenant.record.gpu[0].share_permille = shares[slot];
    snapshot.tenants.push_back(tenant);
    ProcessRecord process{.pid = static_cast<int32_t>(100 + slot), .tenant = slot};
    for (uint16_t& sample : process.history_permille) sample = static_cast<uint16_t>(shares[slot]);
    snapshot.processes.push_back({.slot = slot, .record = process});
  }
  return snapshot;
}

std::string text_of(const std::vector<Span>& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

TEST(TopPast, TheFirstLookHasTheMinuteThatTheAgentKeeps) {
  Past past;
  past.update(with_shares({600, 300}), kNewest);
  ASSERT_EQ(past.of(0).size(), size_t{kHistory});
  for (const PastSecond& second : past.of(0)) {
    EXPECT_TRUE(second.is_known);
    EXPECT_EQ(second.permille[0], 600);
    EXPECT_EQ(second.permille[1], 300);
  }
}

TEST(TopPast, ASecondIsOneColumnHoweverOftenItIsLookedAt) {
  Past past;
  past.update(with_shares({600}), kNewest);
  for (int look = 1; look <= 10; ++look)
    past.update(with_shares({100}), kNewest + std::chrono::milliseconds(200 * look));
  EXPECT_EQ(past.of(0).size(), kHistory + 2);
  EXPECT_EQ(past.of(0).back().permille[0], 100);
}

TEST(TopPast, SecondsBetweenTwoLooksComeFromTheProcesses) {
  Past past;
  PlaneSnapshot snapshot = with_shares({600});
  past.update(snapshot, kNewest);
  snapshot.processes[0].record.history_permille[kHistory - 2] = 50;
  past.update(snapshot, kNewest + std::chrono::seconds(3));
  ASSERT_EQ(past.of(0).size(), kHistory + 3);
  EXPECT_EQ(past.of(0)[kHistory + 1].permille[0], 50);
  EXPECT_EQ(past.of(0)[kHistory + 2].permille[0], 600);
  // Nobody knows what was longer ago than a minute.
  past.update(snapshot, kNewest + std::chrono::seconds(203));
  EXPECT_EQ(past.of(0).size(), kHistory + 203);
  EXPECT_FALSE(past.of(0)[kHistory + 100].is_known);
  EXPECT_LE(past.of(0).size(), Past::kSeconds);
  past.update(snapshot, kNewest + std::chrono::hours(100));
  EXPECT_EQ(past.of(0).size(), Past::kSeconds);
  past.update(snapshot, kNewest);  // time never goes back, and it does no harm
}

TEST(TopPast, ATenantKeepsItsColourAndTheSmallOnesShareTheLast) {
  Past past;
  const PlaneSnapshot many = with_shares({10, 20, 30, 40, 50, 60, 70, 80, 90});
  past.update(many, kNewest);
  EXPECT_EQ(past.ink_of(many.tenants[8].record), 0);  // the largest has the first
  EXPECT_EQ(past.ink_of(many.tenants[2].record), 6);
  EXPECT_EQ(past.ink_of(many.tenants[0].record), kOthers);
  EXPECT_EQ(past.of(0).back().permille[kOthers], 10 + 20);
  // It keeps it when the shares turn around.
  const PlaneSnapshot turned = with_shares({90, 80, 70, 60, 50, 40, 30, 20, 10});
  past.update(turned, kNewest + std::chrono::seconds(1));
  EXPECT_EQ(past.ink_of(turned.tenants[8].record), 0);
  EXPECT_EQ(past.ink_of(turned.tenants[0].record), kOthers);
  // One that has no process any more gives it to another one.
  PlaneSnapshot ended = turned;
  ended.tenants[8].record.process_count = 0;
  past.update(ended, kNewest + std::chrono::seconds(2));
  EXPECT_EQ(past.ink_of(ended.tenants[0].record), 0);
}

TEST(TopGraph, ShowsSharesToAnEighthOfALine) {
  Past past;
  past.update(with_shares({500, 250}), kNewest);
  const auto lines = draw_graph(past.of(0), {.width = 3, .height = 2, .glyphs = Glyphs::kUnicode});
  ASSERT_EQ(lines.size(), 2u);
  // A half below, a quarter above it, and a quarter of nothing.
  EXPECT_EQ(text_of(lines[0]), "▄▄▄");
  EXPECT_EQ(lines[0][0].ink, 1);
  EXPECT_EQ(lines[0][0].behind, kNoInk);
  EXPECT_EQ(text_of(lines[1]), "███");
  EXPECT_EQ(lines[1][0].ink, 0);
}

TEST(TopGraph, TwoInksMeetInACell) {
  Past past;
  past.update(with_shares({500, 500}), kNewest);
  const auto lines = draw_graph(past.of(0), {.width = 1, .height = 1, .glyphs = Glyphs::kUnicode});
  EXPECT_EQ(text_of(lines[0]), "▄");
  EXPECT_EQ(lines[0][0].ink, 0);
  EXPECT_EQ(lines[0][0].behind, 1);
}

TEST(TopGraph, WithoutColoursTenantsAreLetters) {
  Past past;
  past.update(with_shares({500, 250}), kNewest);
  for (const TopScreen& screen :
       {TopScreen{.width = 2, .height = 4, .glyphs = Glyphs::kAscii},
        TopScreen{.width = 2, .height = 4, .glyphs = Glyphs::kUnicode, .has_colours = false}}) {
    const auto lines = draw_graph(past.of(0), screen);
    EXPECT_EQ(text_of(lines[0]), "  ");
    EXPECT_EQ(text_of(lines[1]), "BB");
    EXPECT_EQ(text_of(lines[2]), "AA");
    EXPECT_EQ(text_of(lines[3]), "AA");
  }
}

TEST(TopGraph, WhatIsNotKnownIsBlank) {
  Past past;
  PlaneSnapshot snapshot = with_shares({kUnknown32});
  for (uint16_t& sample : snapshot.processes[0].record.history_permille) sample = 0xFFFF;
  past.update(snapshot, kNewest);
  const TopScreen screen{.width = 80, .height = 2, .glyphs = Glyphs::kUnicode};
  EXPECT_EQ(text_of(draw_graph(past.of(0), screen)[1]), std::string(80, ' '));
  EXPECT_EQ(text_of(draw_bar(past.of(0).back(), screen)), std::string(80, ' '));
}

TEST(TopGraph, ABarUsesItsWidthAndLeavesDotsForWhatIsFree) {
  PastSecond second{.is_known = true, .permille = {}};
  second.permille[0] = 500;
  second.permille[3] = 250;
  const auto bar = draw_bar(second, {.width = 8, .height = 1, .glyphs = Glyphs::kUnicode});
  EXPECT_EQ(text_of(bar), "██████··");
  EXPECT_EQ(bar[0].ink, 0);
  EXPECT_EQ(bar[1].ink, 3);
  EXPECT_EQ(text_of(draw_bar(second, {.width = 8, .height = 1})), "AAAADD..");
}

}  // namespace
}  // namespace gpushare
