// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "shmctl/plane/status_json.h"

namespace gpushare {
namespace {

Style state_style(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning:
      return Style::kGood;
    case ProcessState::kFrozenUser:
      return Style::kBad;
    case ProcessState::kFrozenCap:
    case ProcessState::kFrozenTurn:
    case ProcessState::kObserveOnly:
      return Style::kWarning;
    case ProcessState::kIdle:
    case ProcessState::kWaiting:
      break;
  }
  return Style::kPlain;
}

// What stands before the command in a tree.
std::string branch(const TopLine& line, Glyphs glyphs) {
  if (line.depth == 0) return "";
  const std::string indent(2 * static_cast<size_t>(line.depth - 1), ' ');
  if (glyphs == Glyphs::kUnicode) return indent + (line.is_last ? "└ " : "├ ");
  return indent + (line.is_last ? "` " : "| ");
}

std::string text_of(const TopLine& line, Field field, Glyphs glyphs) {
  const std::string text = field_text(*line.process, field, glyphs);
  return field == Field::kCommand ? branch(line, glyphs) + text : text;
}

// --- what a tenant's or a job's line has in the columns ---

// The sum of what is known; unknown if nothing is.
uint32_t sum_of(const TopLine& line, uint32_t ProcessRecord::* member) {
  uint32_t sum = kUnknown32;
  for (const ProcessRow* row : line.all)
    if (const uint32_t value = row->record.*member; value != kUnknown32)
      sum = (sum == kUnknown32 ? 0 : sum) + value;
  return sum;
}

// "59.7%"; of several GPUs it may be too much for a decimal: "4320%".
std::string sum_text(uint32_t permille) {
  return permille == kUnknown32 || permille < 10'000 ? percent_text(permille)
                                                     : fmt::format("{}%", permille / 10);
}

std::string settings_words(const TenantRecord& tenant) {
  std::string text = sharing_text(tenant);
  if (tenant.memory_max_bytes != kUnknown64)
    text += ", at most " + bytes_text(tenant.memory_max_bytes);
  return text;
}

// "2 running, 1 idle", the processes that stand out first.
std::string states_words(const TopLine& line) {
  if (line.kind == TopLine::Kind::kTenant && line.tenant->frozen_by_user != 0)
    return "frozen: user";
  constexpr std::array kOrder{ProcessState::kObserveOnly, ProcessState::kFrozenUser,
                              ProcessState::kFrozenCap,   ProcessState::kFrozenTurn,
                              ProcessState::kWaiting,     ProcessState::kRunning,
                              ProcessState::kIdle};
  std::string text;
  for (const ProcessState state : kOrder) {
    ProcessRecord only{};
    only.state = state;
    const auto count = std::ranges::count_if(
        line.all, [&](const ProcessRow* row) { return row->record.state == state; });
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state_words(only));
  }
  return text;
}

uint64_t memory_of(const TopLine& line) {
  if (line.kind == TopLine::Kind::kTenant && !line.has_below() && line.tenant->memory_bytes != 0)
    return line.tenant->memory_bytes;
  uint64_t sum = 0;
  for (const ProcessRow* row : line.all)
    if (row->record.memory_bytes != kUnknown64) sum += row->record.memory_bytes;
  return sum;
}

std::string group_history(const TopLine& line, size_t width, Glyphs glyphs) {
  std::array<uint16_t, kHistory> sums;
  sums.fill(0xFFFF);
  for (const ProcessRow* row : line.all)
    for (size_t i = 0; i < kHistory; ++i)
      if (const uint16_t sample = row->record.history_permille[i]; sample != 0xFFFF)
        sums[i] = static_cast<uint16_t>(
            std::min<uint32_t>(1000, (sums[i] == 0xFFFF ? 0 : sums[i]) + sample));
  return sparkline(sums, width, glyphs);
}

// Of a tenant with others below it, theirs too. Those that are not on a GPU count where they are
// its own.
size_t processes_of(const TopLine& line) {
  std::set<pid_t> below;
  for (const ProcessRow* row : line.all) below.insert(row->record.pid);
  for (const ProcessRow* row : line.has) below.erase(row->record.pid);
  return line.tenant->process_count + below.size();
}

std::string fold_mark(const TopLine& line, Glyphs glyphs) {
  if (line.all.empty()) return "";
  if (glyphs == Glyphs::kAscii) return line.is_folded ? "+" : "-";
  return line.is_folded ? "▸" : "▾";
}

std::string group_text(const TopLine& line, Field field, size_t width, Glyphs glyphs) {
  const bool is_tenant = line.kind == TopLine::Kind::kTenant;
  switch (field) {
    case Field::kGpu:
      return fold_mark(line, glyphs);
    case Field::kPid:
      return is_tenant ? fmt::format("{} proc", processes_of(line)) : "";
    case Field::kTenant:
      return tenant_text(*line.tenant);
    case Field::kCommand:
      return is_tenant ? settings_words(*line.tenant) : branch(line, glyphs) + job_name(line.job);
    case Field::kTarget:
      return line.all.empty() ? "-" : sum_text(sum_of(line, &ProcessRecord::target_permille));
    case Field::kShare:
      return line.all.empty() ? "-" : sum_text(sum_of(line, &ProcessRecord::share_permille));
    case Field::kState:
      return states_words(line);
    case Field::kMemory:
      return line.all.empty() ? "-" : bytes_text(memory_of(line));
    case Field::kPast:
      return group_history(line, width, glyphs);
    case Field::kUser:
    case Field::kSlice:
    case Field::kTurn:
    case Field::kLeft:
    case Field::kTokens:
      break;
  }
  return "";
}

bool is_inked(Field field) { return field == Field::kTenant || field == Field::kPast; }

}  // namespace

ListColumns::ListColumns(const TopModel& model, const TopScreen& screen)
    : model_(model), screen_(screen) {
  const bool takes_turns = does_any_take_turns(model.rows());
  std::vector<size_t> shown;  // of kFields
  std::vector<Column> columns;
  for (size_t i = 0; i < kFieldCount; ++i) {
    if (!takes_turns && (kFields[i].field == Field::kTurn || kFields[i].field == Field::kLeft))
      continue;
    shown.push_back(i);
    columns.push_back(kFields[i].column);
    // A wide screen has room for whole commands and reasons.
    if (kFields[i].field == Field::kCommand) columns.back().max_width = screen.width / 4;
  }
  std::vector<size_t> contents(shown.size());
  for (const TopLine& line : model.lines())
    for (size_t i = 0; i < shown.size(); ++i) {
      const Field field = kFields[shown[i]].field;
      const std::string text =
          line.kind == TopLine::Kind::kProcess ? text_of(line, field, screen.glyphs)
          : line.use == nullptr                ? group_text(line, field, kHistory, screen.glyphs)
                                               : "";
      contents[i] = std::max(contents[i], display_width(text));
    }
  placed_ = fit_columns(columns, contents, screen.width);
  for (PlacedColumn& column : placed_) column.index = shown[column.index];
}

FrameLine ListColumns::heading() const {
  FrameLine line;
  size_t used = 0;
  for (const PlacedColumn& column : placed_) {
    const FieldSpec& spec = kFields[column.index];
    const bool is_sorted = spec.field == model_.choices().sort;
    line.spans.push_back({std::string(column.x > 0 ? 1 : 0, ' '), Style::kTitle});
    line.spans.push_back({padded(spec.column.title, column.width, spec.column.align),
                          is_sorted ? Style::kSorted : Style::kTitle});
    used = column.x + column.width;
  }
  line.spans.push_back(
      {std::string(screen_.width - std::min(screen_.width, used), ' '), Style::kTitle});
  return line;
}

std::optional<Field> ListColumns::title_at(size_t x) const {
  for (const PlacedColumn& column : placed_)
    if (x >= column.x && x < column.x + column.width && kFields[column.index].sort_key != 0)
      return kFields[column.index].field;
  return std::nullopt;
}

FrameLine ListColumns::line(const TopLine& of) const {
  return of.kind == TopLine::Kind::kProcess ? process_line(of) : group_line(of);
}

FrameLine ListColumns::process_line(const TopLine& of) const {
  const Ink ink = of.tenant == nullptr ? kOthers : model_.past().ink_of(*of.tenant);
  FrameLine line;
  for (const PlacedColumn& column : placed_) {
    const FieldSpec& spec = kFields[column.index];
    const std::string text =
        spec.field == Field::kPast
            ? sparkline(of.process->record.history_permille, column.width, screen_.glyphs)
            : text_of(of, spec.field, screen_.glyphs);
    if (column.x > 0) line.spans.push_back({" "});
    line.spans.push_back({.text = padded(text, column.width, spec.column.align),
                          .style = spec.field == Field::kState
                                       ? state_style(of.process->record.state)
                                       : Style::kPlain,
                          .ink = is_inked(spec.field) ? ink : kNoInk});
  }
  return line;
}

FrameLine ListColumns::group_line(const TopLine& of) const {
  const Ink ink = model_.past().ink_of(*of.tenant);
  const Style style = of.kind == TopLine::Kind::kTenant ? Style::kBold : Style::kPlain;
  FrameLine line;
  for (const PlacedColumn& column : placed_) {
    const FieldSpec& spec = kFields[column.index];
    if (column.x > 0) line.spans.push_back({" "});
    line.spans.push_back({.text = padded(group_text(of, spec.field, column.width, screen_.glyphs),
                                         column.width, spec.column.align),
                          .style = spec.field == Field::kPast ? Style::kPlain : style,
                          .ink = is_inked(spec.field) ? ink : kNoInk});
  }
  return line;
}

std::pair<size_t, size_t> shown_lines(const TopModel& model, size_t room) {
  const size_t first = room == 0 ? 0 : model.selected() / room * room;
  return {first, std::min(model.lines().size(), first + room)};
}

}  // namespace gpushare
