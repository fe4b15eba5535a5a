// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "shmctl/plane/status_json.h"
#include "shmctl/program/help.h"
#include "tools/top/draw/layout.h"
#include "tools/top/draw/list.h"
#include "tools/top/draw/panels.h"
#include "tools/top/draw/targets.h"
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
  FrameLine line;
  // First, so that it is not what is cut: a display that stands still looks like a quiet machine.
  const std::string paused =
      model.is_paused() ? clipped("[paused: Space goes on] ", width) : std::string();
  if (!paused.empty()) line.spans.push_back({paused, Style::kWarning});
  line.spans.push_back(
      {clipped(text, width - display_width(paused)), is_bad ? Style::kBad : Style::kPlain});
  return line;
}

// --- the list ---

void add_rows(Frame& frame, const TopModel& model, const ListColumns& columns, size_t room,
              size_t width) {
  if (model.lines().empty() && room > 0) {
    const char* const why = !model.filter().empty() ? "nothing matches the filter"
                            : model.status().health.is_live()
                                ? "no process uses a GPU"
                                : "without an agent nobody knows who uses the GPUs";
    frame.push_back(plain_line(why, Style::kDim, width));
    return;
  }
  const TargetColumns targets(model, width);
  const auto [first, end] = shown_lines(model, room);
  for (size_t i = first; i < end; ++i) {
    const TopLine& line = model.lines()[i];
    frame.push_back(line.use != nullptr ? targets.line(line) : columns.line(line));
    frame.back().is_selected = i == model.selected();
  }
}

// --- the last line: what is typed, what was said, or the keys; and which rows are shown ---

// Where each key that fits stands: "F1 Help".
struct PlacedKey {
  size_t x = 0, width = 0;
  const FooterKey* key = nullptr;
};
std::vector<PlacedKey> place_keys(size_t begin, size_t width) {
  std::vector<PlacedKey> placed;
  size_t x = begin;
  for (const FooterKey& key : footer_keys()) {
    const size_t wide = key.name.size() + 1 + key.label.size();
    if (x + wide > width) break;
    placed.push_back({x, wide, &key});
    x += wide + 2;
  }
  return placed;
}

std::string filter_words(const TopModel& model) {
  return model.filter().empty() ? "" : "filter: " + model.filter() + " (Esc: all)  ";
}

// "13-24 of 500"; empty where all are shown.
std::string position_words(const TopModel& model, size_t room) {
  const size_t all = model.lines().size();
  if (room == 0 || all <= room) return "";
  const auto [first, end] = shown_lines(model, room);
  return fmt::format("{}-{} of {}", first + 1, end, all);
}

struct Footer {
  std::string left;  // before the keys
  std::string right;
  size_t width = 0;  // of what is left of `right`
};
Footer footer_of(const TopModel& model, size_t room, size_t width) {
  Footer footer{.left = clipped(filter_words(model), width), .right = position_words(model, room)};
  if (footer.right.size() + 2 > width) footer.right.clear();
  footer.width = width - footer.right.size() - (footer.right.empty() ? 0 : 2);
  return footer;
}

FrameLine footer_line(const TopModel& model, size_t room, size_t width) {
  const Footer footer = footer_of(model, room, width);
  const auto with_position = [&](FrameLine line, size_t used) {
    if (footer.right.empty()) return line;
    fill_line(line.spans, used, width - footer.right.size());
    line.spans.push_back({footer.right, Style::kDim});
    return line;
  };
  const auto words = [&](const std::string& text, Style style) {
    const std::string shown = clipped(text, footer.width);
    return with_position(plain_line(shown, style, footer.width), display_width(shown));
  };
  if (model.mode() == TopModel::Mode::kFilter)
    return words("filter: " + model.filter() + "_   Enter keeps it, Esc shows all", Style::kBold);
  if (model.mode() == TopModel::Mode::kInput) {
    const TopModel::Input& input = model.input();
    // What is typed is never cut before what it is about.
    const std::string typed = ": " + input.text + "_";
    const size_t before = footer.width - std::min(footer.width, display_width(typed) + 1);
    return words(clipped(fmt::format("{} ({})", input.about, input.allowed), before) + typed +
                     "   Enter, or Esc",
                 Style::kBold);
  }
  if (!model.message().empty())
    return words(model.message(), model.is_message_bad() ? Style::kBad : Style::kBold);
  FrameLine line;
  size_t used = display_width(footer.left);
  line.spans.push_back({footer.left, Style::kBold});
  for (const PlacedKey& placed : place_keys(used, footer.width)) {
    fill_line(line.spans, used, placed.x);
    line.spans.push_back({std::string(placed.key->name), Style::kBold});
    line.spans.push_back({" " + std::string(placed.key->label), Style::kDim});
    used = placed.x + placed.width;
  }
  return with_position(std::move(line), used);
}

// A message that the last line would cut: its lines, of which the last one is the last of the
// screen. They cover rows until the next key, so that the reason of a refusal is read. Empty: it
// fits, or there is none.
Frame message_lines(const TopModel& model, size_t room, size_t width) {
  using Mode = TopModel::Mode;
  const bool is_shown = model.mode() == Mode::kList || model.mode() == Mode::kConfirm;
  if (!is_shown || display_width(model.message()) <= footer_of(model, room, width).width) return {};
  Frame lines;
  const Style style = model.is_message_bad() ? Style::kBad : Style::kBold;
  std::istringstream text(wrap(model.message(), width, 0));
  for (std::string line; std::getline(text, line);) lines.push_back(plain_line(line, style, width));
  if (lines.size() > room + 1) lines.resize(room + 1);
  return lines;
}

Frame help_frame(const TopModel& model, size_t width, size_t height) {
  Frame lines;
  for (const KeyHelp& key : top_keys())
    lines.push_back(
        plain_line(fmt::format("  {:<9} {}", key.keys, key.text), Style::kPlain, width));
  lines.emplace_back();
  std::istringstream notes(wrap(
      "A GPU's graph is its time, a column a second, by tenant. SHARE is what was measured in the "
      "last second: time on the GPU, busy or not. TARGET is what the policy wants while the "
      "present programs are active. TOKENS is what is left "
      "of a cap. A tenant on a GPU that is divided by target times (slo) has the mean, the p99 "
      "and the rate of its iterations in its line; its SMs in use and entitled to, and by how "
      "many tenants if they share them; and its knee: more SMs do not help it. ? is not known, "
      "- does not apply.",
      width, 2));
  for (std::string text; std::getline(notes, text);)
    lines.push_back(plain_line(text, Style::kPlain, width));

  const size_t room = height - std::min<size_t>(height, 1);
  const bool do_all_fit = lines.size() <= room;
  const size_t first = do_all_fit ? 0 : std::min(model.help_line(), lines.size() - room);
  Frame frame{plain_line(do_all_fit ? "gpushare-top: any key goes back"
                                    : "gpushare-top: Up and Down scroll, any other key goes back",
                         Style::kBold, width)};
  frame.insert(frame.end(), lines.begin() + static_cast<ptrdiff_t>(first), lines.end());
  frame.resize(height);
  return frame;
}

TopLayout layout_of(const TopModel& model, const TopScreen& screen) {
  return arrange(screen.width, screen.height, model.status().snapshot.gpus.size(),
                 warning_lines(model.status().snapshot).size(), model.choices().has_graphs);
}

}  // namespace

size_t rows_visible(const TopModel& model, const TopScreen& screen) {
  return layout_of(model, screen).rows.height;
}

TopHit hit_at(const TopModel& model, const TopScreen& screen, size_t x, size_t y) {
  if (model.mode() == TopModel::Mode::kHelp) return {};
  const TopLayout layout = layout_of(model, screen);
  const auto is_in = [y](const Band& band) { return y >= band.y && y < band.y + band.height; };
  // What a message covers is not hit.
  const size_t covered = message_lines(model, layout.rows.height, screen.width).size();
  if (covered > 0 && y + covered > layout.footer.y && y < layout.footer.y) return {};
  TopHit hit;
  if (is_in(layout.heading)) {
    hit.title = ListColumns(model, screen).title_at(x);
  } else if (is_in(layout.rows)) {
    const auto [first, end] = shown_lines(model, layout.rows.height);
    if (const size_t line = first + y - layout.rows.y; line < end) hit.line = line;
  } else if (is_in(layout.footer)) {
    const Footer footer = footer_of(model, layout.rows.height, screen.width);
    for (const PlacedKey& placed : place_keys(display_width(footer.left), footer.width))
      if (x >= placed.x && x < placed.x + placed.width) hit.key = placed.key->key;
  }
  return hit;
}

Frame compose(const TopModel& model, const TopScreen& screen) {
  const size_t width = screen.width, height = screen.height;
  if (model.mode() == TopModel::Mode::kHelp) return help_frame(model, width, height);
  const TopLayout layout = layout_of(model, screen);
  const PlaneSnapshot& snapshot = model.status().snapshot;
  const ListColumns columns(model, screen);
  Frame frame;
  if (layout.agent.height > 0) frame.push_back(agent_line(model, width));
  const std::vector<std::string> warnings = warning_lines(snapshot);
  for (size_t i = 0; i < layout.warnings.height; ++i)
    frame.push_back(plain_line(warnings[i], Style::kWarning, width));
  add_panels(frame, model, layout, screen);
  if (layout.heading.height > 0) frame.push_back(columns.heading());
  add_rows(frame, model, columns, layout.rows.height, width);
  frame.resize(layout.footer.y);
  if (layout.footer.height > 0) {
    const Frame message = message_lines(model, layout.rows.height, width);
    if (message.empty()) {
      frame.push_back(footer_line(model, layout.rows.height, width));
    } else {
      frame.resize(layout.footer.y + 1 - message.size());
      frame.insert(frame.end(), message.begin(), message.end());
    }
  }
  frame.resize(height);
  return frame;
}

}  // namespace gpushare
