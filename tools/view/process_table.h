// SPDX-License-Identifier: Apache-2.0
// One row per process and GPU, and what can be shown of it: used by gpushare status and
// gpushare-top, so that both say the same in the same words. Pure.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "tools/base/table.h"

namespace gpushare {

struct ProcessRow {
  ProcessRecord record{};
  std::string tenant{};  // its name; "?" if its slot is empty
  uint32_t tenant_weight = 0;
};

// In the order of the control plane.
std::vector<ProcessRow> process_rows(const PlaneSnapshot& snapshot);

enum class Field {
  kGpu,
  kPid,
  kTenant,
  kCommand,
  kTarget,
  kShare,
  kSlice,
  kState,
  kTokens,
  kMemory,
  kPast,
};
inline constexpr size_t kFieldCount = 11;

struct FieldSpec {
  Field field;
  Column column;
  char sort_key;       // in gpushare-top; 0: not to be sorted by
  bool is_descending;  // the natural order: most first
};
// In the order of display; kFields[i].field == Field(i).
extern const std::array<FieldSpec, kFieldCount> kFields;

enum class Glyphs { kAscii, kUnicode };
std::string field_text(const ProcessRow& row, Field field, Glyphs glyphs);

// "running", "frozen: cap", "observe only: no permission" ...
std::string state_words(const ProcessRecord& process);

// Less than, in the field's natural order; what is unknown comes last. A strict weak order; rows
// that are equal in the field are ordered by GPU and pid.
bool row_before(const ProcessRow& a, const ProcessRow& b, Field field);

// The newest `width` samples, one column each; '?' glyphs for unknown ones are blanks, so that a
// gap looks like one.
std::string sparkline(std::span<const uint16_t> permille, size_t width, Glyphs glyphs);

}  // namespace gpushare
