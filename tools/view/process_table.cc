// SPDX-License-Identifier: Apache-2.0
#include "tools/view/process_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <string_view>

#include "tools/base/format.h"

namespace gpushare {
namespace {

constexpr uint16_t kUnknownSample = 0xFFFF;

// Ordering of numbers where "unknown" stands after everything.
template <class T>
struct Known {
  bool is_unknown;
  T value;
  auto operator<=>(const Known&) const = default;
};

template <class T>
Known<T> known(T value, bool is_known) {
  return {!is_known, is_known ? value : T{}};
}

// More first: compares b with a, but unknown is still last.
template <class T>
std::strong_ordering most_first(T a, bool is_a_known, T b, bool is_b_known) {
  if (is_a_known != is_b_known)
    return is_a_known ? std::strong_ordering::less : std::strong_ordering::greater;
  return known(b, is_b_known) <=> known(a, is_a_known);
}

std::strong_ordering most_first(uint32_t a, uint32_t b) {
  return most_first(a, a != kUnknown32, b, b != kUnknown32);
}

bool is_memory_known(const ProcessRecord& process) {
  // Of a process found late only what it allocates from now on is seen.
  return process.memory_bytes != kUnknown64 &&
         (process.is_late_attach == 0 || process.memory_bytes != 0);
}

std::strong_ordering compare(const ProcessRow& a, const ProcessRow& b, Field field) {
  const ProcessRecord& x = a.record;
  const ProcessRecord& y = b.record;
  switch (field) {
    case Field::kGpu:
      return x.gpu <=> y.gpu;
    case Field::kPid:
      return x.pid <=> y.pid;
    case Field::kUser:
      return a.user <=> b.user;
    case Field::kTenant:
      return a.tenant <=> b.tenant;
    case Field::kCommand:
      return std::string_view(x.command) <=> std::string_view(y.command);
    case Field::kTarget:
      return most_first(x.target_permille, y.target_permille);
    case Field::kShare:
      return most_first(x.share_permille, y.share_permille);
    case Field::kSlice:
      return most_first(x.slice_us, y.slice_us);
    case Field::kState:
      return y.state <=> x.state;  // what stands out first: frozen and observe only
    case Field::kTurn:             // the next one first, and those that take none last
      return known(x.job_place, x.job_place != 0) <=> known(y.job_place, y.job_place != 0);
    case Field::kLeft:
      return known(x.job_left_us, x.job_left_us != kUnknown64) <=>
             known(y.job_left_us, y.job_left_us != kUnknown64);
    case Field::kTokens:
      // Who has least is the interesting one.
      return known(x.tokens_ns, x.has_bucket != 0) <=> known(y.tokens_ns, y.has_bucket != 0);
    case Field::kMemory:
      return most_first(x.memory_bytes, is_memory_known(x), y.memory_bytes, is_memory_known(y));
    case Field::kPast:
      break;
  }
  return std::strong_ordering::equal;
}

std::string command_text(const ProcessRecord& process) {
  const std::string line = printable({process.command_line, sizeof(process.command_line)});
  return line.empty() ? printable({process.command, sizeof(process.command)})
                      : without_folder(line);
}

}  // namespace

std::string without_folder(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const size_t slash = line.rfind('/', end);
  return slash == std::string::npos || slash + 1 >= end ? line : line.substr(slash + 1);
}

const std::array<FieldSpec, kFieldCount> kFields{{
    {Field::kGpu, {"GPU", 3, 3, Align::kRight, 60}, 'G', false},
    {Field::kPid, {"PID", 7, 7, Align::kRight, Column::kAlways}, 'P', false},
    {Field::kUser, {"USER", 4, 12, Align::kLeft, 55}, 'U', false},
    {Field::kTenant, {"TENANT", 8, 16, Align::kLeft, 90}, 'N', false},
    {Field::kCommand, {"COMMAND", 16, 40, Align::kLeft, 80}, 'C', false},
    {Field::kTarget, {"TARGET", 6, 6, Align::kRight, 85}, 'T', true},
    {Field::kShare, {"SHARE", 6, 6, Align::kRight, Column::kAlways}, 'S', true},
    {Field::kSlice, {"SLICE", 7, 7, Align::kRight, 38}, 'L', true},
    {Field::kState, {"STATE", 13, 40, Align::kLeft, 95}, 'A', true},
    {Field::kTurn, {"TURN", 5, 12, Align::kLeft, 48}, 'o', false},
    {Field::kLeft, {"LEFT", 6, 20, Align::kLeft, 45}, 'E', false},
    {Field::kTokens, {"TOKENS", 8, 8, Align::kRight, 30}, 'K', false},
    {Field::kMemory, {"MEM", 5, 5, Align::kRight, 40}, 'M', true},
    {Field::kPast, {"HISTORY", 10, 60, Align::kLeft, 20}, 0, false},
}};

std::vector<ProcessRow> process_rows(const PlaneSnapshot& snapshot, UserNames names) {
  std::vector<ProcessRow> rows;
  rows.reserve(snapshot.processes.size());
  for (const auto& [slot, record] : snapshot.processes) {
    ProcessRow row{.record = record, .tenant = kUnknownText};
    row.user = names != nullptr ? printable(names(record.uid)) : fmt::format("{}", record.uid);
    const auto tenant = std::ranges::lower_bound(snapshot.tenants, record.tenant, {},
                                                 &Numbered<TenantRecord>::slot);
    if (tenant != snapshot.tenants.end() && tenant->slot == record.tenant) {
      row.tenant = tenant_text(tenant->record);
      row.tenant_weight = tenant->record.weight;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string sort_field_names() {
  std::string names;
  for (const FieldSpec& spec : kFields) {
    if (spec.sort_key == 0) continue;
    if (!names.empty()) names += ' ';
    names += lowered(spec.column.title);
  }
  return names;
}

std::optional<Field> sort_field_named(std::string_view name) {
  for (const FieldSpec& spec : kFields)
    if (spec.sort_key != 0 && name == lowered(spec.column.title)) return spec.field;
  return std::nullopt;
}

std::string job_name(uint64_t run, int32_t pid) {
  return run != 0 ? fmt::format("run-{}", run) : fmt::format("pid-{}", pid);
}

bool does_match(const ProcessRow& row, const std::string& text) {
  const auto has = [&](const std::string& shown) { return lowered(shown).contains(text); };
  for (Field field : {Field::kPid, Field::kUser, Field::kTenant, Field::kCommand, Field::kState})
    if (has(field_text(row, field, Glyphs::kAscii))) return true;
  return has(job_name(row.record.run, row.record.pid));
}

void choose_processes(PlaneSnapshot& snapshot, const RowChoice& choice, UserNames names) {
  const std::vector<ProcessRow> rows = process_rows(snapshot, names);
  const std::string filter = lowered(choice.filter);
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i)
    if (does_match(rows[i], filter)) places.push_back(i);
  if (choice.sort)
    std::ranges::sort(
        places, [&](size_t a, size_t b) { return row_before(rows[a], rows[b], *choice.sort); });
  auto& processes = snapshot.processes;
  std::remove_reference_t<decltype(processes)> chosen;
  chosen.reserve(places.size());
  for (const size_t place : places) chosen.push_back(processes[place]);
  processes = std::move(chosen);
}

bool does_any_take_turns(std::span<const ProcessRow> rows) {
  return std::ranges::any_of(
      rows, [](const ProcessRow& row) { return row.record.turn != TurnState::kFree; });
}

std::string turn_text(TurnState turn) {
  constexpr std::array<const char*, 6> kTurns{"-",       "queued",   "held",
                                              "running", "stopping", "stopped"};
  const auto index = static_cast<size_t>(turn);
  return index < kTurns.size() ? kTurns[index] : kUnknownText;
}

std::string left_text(uint64_t left_us, uint32_t left_by) {
  constexpr std::array<const char*, 4> kWords{"unknown", "learnt", "said", "announced"};
  if (left_us == kUnknown64 || left_us > kUnknown64 / 2000) return kUnknownText;
  return fmt::format("{} {}", duration_text(std::chrono::microseconds(left_us)),
                     kWords[left_by < kWords.size() ? left_by : 0]);
}

std::string state_words(const ProcessRecord& process) {
  struct Words {
    ProcessState state;
    const char* words;
    const char* before_note;  // null: a note is not shown
  };
  constexpr Words kWords[] = {
      {ProcessState::kIdle, "idle", nullptr},
      {ProcessState::kRunning, "running", nullptr},
      {ProcessState::kWaiting, "waiting", nullptr},
      {ProcessState::kFrozenCap, "frozen: cap", ", "},
      {ProcessState::kFrozenTurn, "frozen: turn", ", "},
      {ProcessState::kFrozenUser, "frozen: user", ", "},
      {ProcessState::kObserveOnly, "observe only", ": "},
  };
  const auto found = std::ranges::find(kWords, process.state, &Words::state);
  if (found == std::end(kWords)) return kUnknownText;
  const std::string note = printable({process.note, sizeof(process.note)});
  if (found->before_note == nullptr || note.empty()) return found->words;
  return std::string(found->words) + found->before_note + note;
}

std::string field_text(const ProcessRow& row, Field field, Glyphs glyphs) {
  const ProcessRecord& process = row.record;
  switch (field) {
    case Field::kGpu:
      return fmt::format("{}", process.gpu);
    case Field::kPid:
      return fmt::format("{}", process.pid);
    case Field::kUser:
      return row.user;
    case Field::kTenant:
      return row.tenant;
    case Field::kCommand:
      return command_text(process);
    case Field::kTarget:
      return percent_text(process.target_permille);
    case Field::kShare:
      return percent_text(process.share_permille);
    case Field::kSlice:
      return micros_text(process.slice_us);
    case Field::kState:
      return state_words(process);
    case Field::kTurn:
      return process.job_place == 0
                 ? turn_text(process.turn)
                 : fmt::format("{} {}", process.job_place, turn_text(process.turn));
    case Field::kLeft:
      return process.turn == TurnState::kFree ? "-"
                                              : left_text(process.job_left_us, process.job_left_by);
    case Field::kTokens:
      return process.has_bucket != 0 ? tokens_text(process.tokens_ns) : "-";
    case Field::kMemory:
      return is_memory_known(process) ? bytes_text(process.memory_bytes) : kUnknownText;
    case Field::kPast:
      return sparkline(process.history_permille, kHistory, glyphs);
  }
  return kUnknownText;
}

bool row_before(const ProcessRow& a, const ProcessRow& b, Field field) {
  if (const auto order = compare(a, b, field); order != 0) return order < 0;
  if (a.record.gpu != b.record.gpu) return a.record.gpu < b.record.gpu;
  return a.record.pid < b.record.pid;
}

std::string sparkline(std::span<const uint16_t> permille, size_t width, Glyphs glyphs) {
  static constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<std::string_view, 8> kAscii{"_", ".", ",", "-", "=", "+", "*", "#"};
  const auto& levels = glyphs == Glyphs::kUnicode ? kBlocks : kAscii;
  std::string out;
  for (uint16_t sample : permille.last(std::min(width, permille.size()))) {
    if (sample == kUnknownSample)
      out += ' ';
    else
      out += levels[std::min<size_t>(levels.size() - 1, sample * levels.size() / 1000)];
  }
  return out;
}

}  // namespace gpushare
