// SPDX-License-Identifier: Apache-2.0
// Makes one row per process and GPU, and formats what can be shown of it. gpushare status and
// gpushare-top both use it, so that they say the same in the same words. Pure.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "tools/base/table.h"

namespace gpushare {

struct ProcessRow {
  ProcessRecord record{};
  std::string tenant{};  // its name; "?" if its slot is empty
  uint32_t tenant_weight = 0;
  std::string user{};  // its name, otherwise its number
};

// The name of the user with this number (user_name() of tools/base/users.h, or a test's).
using UserNames = std::string (*)(uid_t);

// In the order of the control plane. Without `names` users are numbers.
std::vector<ProcessRow> process_rows(const PlaneSnapshot& snapshot, UserNames names = nullptr);

enum class Field {
  kGpu,
  kPid,
  kUser,
  kTenant,
  kCommand,
  kTarget,
  kShare,
  kSlice,
  kState,
  kTurn,
  kLeft,
  kTokens,
  kMemory,
  kPast,
};
inline constexpr size_t kFieldCount = 14;

struct FieldSpec {
  Field field;
  Column column;
  char sort_key;       // in gpushare-top; 0 if rows cannot be sorted by it
  bool is_descending;  // the natural order: most first
};
// In the order of display; kFields[i].field == Field(i).
extern const std::array<FieldSpec, kFieldCount> kFields;

// The field by which rows can be sorted that has this title, in lower case ("share", "mem");
// nullopt: none has.
std::optional<Field> sort_field_named(std::string_view name);
// Their names: "gpu pid tenant ...".
std::string sort_field_names();

// "run-4711" of a job that `gpushare run` has started, "pid-4712" of a process by itself.
std::string job_name(uint64_t run, int32_t pid);

// Whether a row has `text`, of which letters are in lower case, in its process id, user, tenant,
// job, command or state. Any row has an empty one.
bool does_match(const ProcessRow& row, const std::string& text);

// Which processes are wanted, and in which order.
struct RowChoice {
  std::optional<Field> sort{};  // by this field, in its natural order
  std::string filter{};         // those that contain this text, whatever its case
};
// Leaves those in the snapshot, in that order; without one, in that of the control plane.
void choose_processes(PlaneSnapshot& snapshot, const RowChoice& choice, UserNames names = nullptr);

// Whether a process of them takes turns with others; otherwise the fields kTurn and kLeft say
// nothing.
bool does_any_take_turns(std::span<const ProcessRow> rows);

// "running", "held" ...; "-" of a process whose GPU does not take turns.
std::string turn_text(TurnState turn);
// "1 min 5 s said", "?" if it is unknown; the word says how it is known.
std::string left_text(uint64_t left_us, uint32_t left_by);

// A command line, the program without its folder: "train --epochs 90".
std::string without_folder(const std::string& line);

enum class Glyphs { kAscii, kUnicode };
std::string field_text(const ProcessRow& row, Field field, Glyphs glyphs);

// "running", "frozen: cap", "observe only: no permission" ...
std::string state_words(const ProcessRecord& process);

// Returns whether `a` comes first in the field's natural order, in which the unknown comes last. It
// is a strict weak order; rows that are equal in the field are ordered by GPU and pid.
bool row_before(const ProcessRow& a, const ProcessRow& b, Field field);

// Draws the newest `width` samples, one column each. Unknown ones are blanks, so that a gap looks
// like one.
std::string sparkline(std::span<const uint16_t> permille, size_t width, Glyphs glyphs);

}  // namespace gpushare
