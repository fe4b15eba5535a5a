// SPDX-License-Identifier: Apache-2.0
#include "tools/top/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "shmctl/plane/status_json.h"
#include "shmctl/program/help.h"
#include "tools/top/layout.h"
#include "tools/top/panels.h"
#include "tools/top/targets.h"
#include "tools/view/plain_view.h"

namespace gpushare {
namespace {

// --- the head: agent, warnings ---

FrameLine plain_line(std::string_view text, Style style, size_t width) {
  return {.spans = {{clipped(text, width), style}}, .is_selected = false};
}

FrameLine agent_line(const TopModel& model, size_t width) {
  const Status& status = model.status();
  std::string text = "gpushared ";
  bool is_bad = !status.health.is_live();
  const std::optional<Error>& failure = model.failure();
  if (failure && status.health.state == AgentHealth::State::kNever) {
    text = failure->message();
  } else {
    text += health_text(status.snapshot.agent, status.health, status.taken, status.snapshot.ending);
    if (failure) {
      text += "; no news: " + failure->message();
      is_bad = true;
    }
  }
  FrameLine line = plain_line(text, is_bad ? Style::kBad : Style::kPlain, width);
  const std::string_view paused = " [display paused: Space goes on]";
  if (model.is_paused() && display_width(text) + paused.size() <= width)
    line.spans.push_back({std::string(paused), Style::kWarning});
  return line;
}

// --- the list ---

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

std::vector<PlacedColumn> place_columns(const TopModel& model, size_t width, Glyphs glyphs) {
  const bool takes_turns = std::ranges::any_of(model.lines(), [](const TopLine& line) {
    return line.process != nullptr && does_any_take_turns(std::span(line.process, 1));
  });
  std::vector<size_t> shown;  // of kFields
  std::vector<Column> columns;
  for (size_t i = 0; i < kFieldCount; ++i) {
    if (!takes_turns && (kFields[i].field == Field::kTurn || kFields[i].field == Field::kLeft))
      continue;
    shown.push_back(i);
    columns.push_back(kFields[i].column);
  }
  std::vector<size_t> contents(shown.size());
  for (const TopLine& line : model.lines()) {
    if (line.process == nullptr) continue;
    for (size_t i = 0; i < shown.size(); ++i)
      contents[i] = std::max(
          contents[i], display_width(field_text(*line.process, kFields[shown[i]].field, glyphs)));
  }
  std::vector<PlacedColumn> placed = fit_columns(columns, contents, width);
  for (PlacedColumn& column : placed) column.index = shown[column.index];
  return placed;
}

FrameLine heading_line(const TopModel& model, const std::vector<PlacedColumn>& placed,
                       size_t width) {
  FrameLine line;
  size_t used = 0;
  for (const PlacedColumn& column : placed) {
    const FieldSpec& spec = kFields[column.index];
    const bool is_sorted = spec.field == model.sort_field();
    const std::string gap = column.x > 0 ? " " : "";
    line.spans.push_back({gap + padded(spec.column.title, column.width, spec.column.align),
                          is_sorted ? Style::kBold : Style::kTitle});
    used = column.x + column.width;
  }
  line.spans.push_back({std::string(width - std::min(width, used), ' '), Style::kTitle});
  return line;
}

Style field_style(const ProcessRow& row, Field field) {
  return field == Field::kState ? state_style(row.record.state) : Style::kPlain;
}

FrameLine process_line(const ProcessRow& row, Ink ink, const std::vector<PlacedColumn>& placed,
                       Glyphs glyphs) {
  FrameLine line;
  for (const PlacedColumn& column : placed) {
    const FieldSpec& spec = kFields[column.index];
    const std::string text = spec.field == Field::kPast
                                 ? sparkline(row.record.history_permille, column.width, glyphs)
                                 : field_text(row, spec.field, glyphs);
    const std::string gap = column.x > 0 ? " " : "";
    const bool is_inked = spec.field == Field::kTenant || spec.field == Field::kPast;
    line.spans.push_back({.text = gap + padded(text, column.width, spec.column.align),
                          .style = field_style(row, spec.field),
                          .ink = is_inked ? ink : kNoInk});
  }
  return line;
}

// Of one that no target times concern.
FrameLine tenant_line(const TenantRecord& tenant, const PlaneSnapshot& snapshot, size_t width) {
  std::string text = fmt::format("{}: weight {}, {}, {}, {} {}, share {}",
                                 printable({tenant.name, sizeof(tenant.name)}), tenant.weight,
                                 tenant.quota_us == kUnknown64
                                     ? "no cap"
                                     : "cap " + cap_text(tenant.quota_us, tenant.period_us),
                                 priority_text(tenant.priority), tenant.process_count,
                                 tenant.process_count == 1 ? "process" : "processes",
                                 shares_text(tenant, snapshot, &TenantGpuUse::share_permille));
  if (tenant.frozen_by_user != 0) text += ", frozen: user";
  return plain_line(text, Style::kBold, width);
}

// Whole pages, so that rows do not slide under the eye while the choice moves.
void add_rows(Frame& frame, const TopModel& model, const std::vector<PlacedColumn>& placed,
              size_t lines, size_t width, Glyphs glyphs) {
  const std::vector<TopLine>& all = model.lines();
  if (all.empty() && lines > 0) {
    frame.push_back(
        plain_line(model.filter().empty() ? "no process uses a GPU" : "nothing matches the filter",
                   Style::kDim, width));
    return;
  }
  const TargetColumns targets(model, width);
  const size_t first = lines == 0 ? 0 : model.selected() / lines * lines;
  for (size_t i = first; i < std::min(all.size(), first + lines); ++i) {
    FrameLine line =
        all[i].process != nullptr
            ? process_line(*all[i].process, model.ink_of(*all[i].process), placed, glyphs)
        : all[i].use != nullptr ? targets.line(all[i])
                                : tenant_line(*all[i].tenant, model.status().snapshot, width);
    line.is_selected = i == model.selected();
    frame.push_back(std::move(line));
  }
}

FrameLine footer_line(const TopModel& model, size_t width) {
  if (model.mode() == TopModel::Mode::kFilter)
    return plain_line("filter: " + model.filter() + "_", Style::kBold, width);
  if (!model.message().empty())
    return plain_line(model.message(), model.is_message_bad() ? Style::kBad : Style::kBold, width);
  std::string text;
  if (!model.filter().empty()) text = "filter: " + model.filter() + " (Esc: all)  ";
  text += "? help  q quit  f freeze  t thaw  +- weight  / filter  v group";
  return plain_line(text, Style::kDim, width);
}

Frame help_frame(size_t width, size_t height) {
  Frame frame;
  frame.push_back(plain_line("gpushare-top: any key goes back", Style::kBold, width));
  for (const KeyHelp& key : top_keys())
    frame.push_back(
        plain_line(fmt::format("  {:<9} {}", key.keys, key.text), Style::kPlain, width));
  frame.emplace_back();
  std::istringstream notes(wrap(
      "TARGET is what the policy wants while the present programs are active; SHARE is what "
      "was measured in the last second: time on the GPU, busy or not. TOKENS is what is left "
      "of a cap. A tenant on a GPU that is divided by target times (slo) has the mean, the p99 "
      "and the rate of its iterations in its line; its SMs in use and entitled to, and by how "
      "many tenants if they share them; and its knee: more SMs do not help it. ? is not known, "
      "- does not apply.",
      width, 2));
  for (std::string text; std::getline(notes, text);)
    frame.push_back(plain_line(text, Style::kPlain, width));
  frame.resize(height);
  return frame;
}

TopLayout layout_of(const TopModel& model, const TopScreen& screen) {
  return arrange(screen.width, screen.height, model.status().snapshot.gpus.size(),
                 warning_lines(model.status().snapshot).size());
}

}  // namespace

size_t rows_visible(const TopModel& model, const TopScreen& screen) {
  return layout_of(model, screen).rows.height;
}

std::span<const KeyHelp> top_keys() {
  static constexpr std::array<KeyHelp, 14> kKeys{{
      {"Up Down", "choose a row; also j k, Page Up, Page Down, Home, End"},
      {"f", "freeze the process, or the tenant, in this row (asks first)"},
      {"t", "thaw it (asks first)"},
      {"+ -", "raise or lower the weight of its tenant by a tenth"},
      {"v", "group by tenant, and back"},
      {"/", "show only rows that contain a text; Escape shows all"},
      {"S T", "sort by share, by target; the same key again turns the order"},
      {"G P N", "sort by GPU, process id, tenant's name"},
      {"C L A", "sort by command, slice, state"},
      {"K M", "sort by tokens, memory"},
      {"o E", "sort by the order of turns, by what is left of the job"},
      {"Space", "pause the display, and go on; the agent works on"},
      {"?", "this list"},
      {"q", "quit"},
  }};
  return kKeys;
}

Frame compose(const TopModel& model, const TopScreen& screen) {
  const size_t width = screen.width, height = screen.height;
  if (model.mode() == TopModel::Mode::kHelp) return help_frame(width, height);
  const TopLayout layout = layout_of(model, screen);
  const PlaneSnapshot& snapshot = model.status().snapshot;
  const auto placed = place_columns(model, width, screen.glyphs);
  Frame frame;
  if (layout.agent.height > 0) frame.push_back(agent_line(model, width));
  const std::vector<std::string> warnings = warning_lines(snapshot);
  for (size_t i = 0; i < layout.warnings.height; ++i)
    frame.push_back(plain_line(warnings[i], Style::kWarning, width));
  add_panels(frame, model, layout, screen);
  if (layout.heading.height > 0) frame.push_back(heading_line(model, placed, width));
  add_rows(frame, model, placed, layout.rows.height, width, screen.glyphs);
  frame.resize(layout.footer.y);
  if (layout.footer.height > 0) frame.push_back(footer_line(model, width));
  frame.resize(height);
  return frame;
}

}  // namespace gpushare
