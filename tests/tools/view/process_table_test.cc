// SPDX-License-Identifier: Apache-2.0
#include "tools/view/process_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

TEST(ProcessTable, FieldsStandAtTheirOwnIndexAndKeysAreUnique) {
  std::set<char> keys;
  for (size_t i = 0; i < kFieldCount; ++i) {
    EXPECT_EQ(static_cast<size_t>(kFields[i].field), i);
    EXPECT_TRUE(kFields[i].sort_key == 0 || keys.insert(kFields[i].sort_key).second);
  }
}

TEST(ProcessTable, NamesTheTenantOrSaysThatItIsUnknown) {
  PlaneSnapshot snapshot = fake_snapshot({.processes = 2}, Time{});
  snapshot.processes[1].record.tenant = 77;
  const auto rows = process_rows(snapshot);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].tenant, "research");
  EXPECT_EQ(rows[0].tenant_weight, 300u);
  EXPECT_EQ(rows[1].tenant, "?");
}

TEST(ProcessTable, UnknownIsShownAsUnknown) {
  ProcessRow row;
  row.record.pid = 5;
  EXPECT_EQ(field_text(row, Field::kTarget, Glyphs::kAscii), "?");
  EXPECT_EQ(field_text(row, Field::kShare, Glyphs::kAscii), "?");
  EXPECT_EQ(field_text(row, Field::kSlice, Glyphs::kAscii), "?");
  EXPECT_EQ(field_text(row, Field::kTokens, Glyphs::kAscii), "-");
  EXPECT_EQ(field_text(row, Field::kMemory, Glyphs::kAscii), "0B");
  row.record.is_late_attach = 1;
  EXPECT_EQ(field_text(row, Field::kMemory, Glyphs::kAscii), "?");
}

TEST(ProcessTable, CommandsAreShownWithoutTheFolderOfTheProgram) {
  const std::pair<const char*, const char*> table[] = {
      {"/usr/bin/train --data /mnt/x", "train --data /mnt/x"},
      {"./simulate", "simulate"},
      {"python /home/u/train.py", "python /home/u/train.py"},
      {"/usr/bin/", "/usr/bin/"},
      {"/", "/"},
      {"", "comm"}};
  for (const auto& [line, shown] : table) {
    ProcessRow row;
    std::strcpy(row.record.command, "comm");
    std::strcpy(row.record.command_line, line);
    EXPECT_EQ(field_text(row, Field::kCommand, Glyphs::kAscii), shown);
  }
}

TEST(ProcessTable, EveryStateHasItsReason) {
  ProcessRecord process;
  const char* expected[] = {"idle",         "running",      "waiting",     "frozen: cap",
                            "frozen: turn", "frozen: user", "observe only"};
  for (uint32_t state = 0; state < std::size(expected); ++state) {
    process.state = static_cast<ProcessState>(state);
    EXPECT_EQ(state_words(process), expected[state]);
  }
  std::strcpy(process.note, "no\tpermission");
  EXPECT_EQ(state_words(process), "observe only: no?permission");
  process.state = ProcessState::kFrozenTurn;
  EXPECT_EQ(state_words(process), "frozen: turn, no?permission");
  process.state = static_cast<ProcessState>(99);  // a newer agent's, or garbage
  EXPECT_EQ(state_words(process), "?");
}

TEST(ProcessTable, OrdersAreStrictAndUnknownComesLast) {
  const auto rows = process_rows(fake_snapshot({.gpus = 2, .processes = 30}, Time{}));
  for (const FieldSpec& spec : kFields)
    for (const ProcessRow& a : rows)
      for (const ProcessRow& b : rows) {
        EXPECT_FALSE(row_before(a, b, spec.field) && row_before(b, a, spec.field));
        EXPECT_EQ(row_before(a, b, spec.field) || row_before(b, a, spec.field), &a != &b);
      }
  ProcessRow known, unknown;
  known.record.share_permille = 0;
  EXPECT_TRUE(row_before(known, unknown, Field::kShare));
  EXPECT_FALSE(row_before(unknown, known, Field::kShare));
  ProcessRow more;
  more.record.share_permille = 500;
  EXPECT_TRUE(row_before(more, known, Field::kShare));
}

TEST(Sparkline, ShowsTheNewestAndLeavesGaps) {
  const uint16_t samples[] = {0, 1000, 0xFFFF, 500, 999};
  EXPECT_EQ(sparkline(samples, 5, Glyphs::kUnicode), "▁█ ▅█");
  EXPECT_EQ(sparkline(samples, 2, Glyphs::kUnicode), "▅█");
  EXPECT_EQ(sparkline(samples, 9, Glyphs::kAscii), "_# =#");
  EXPECT_EQ(sparkline(samples, 0, Glyphs::kAscii), "");
}

}  // namespace
}  // namespace gpushare
