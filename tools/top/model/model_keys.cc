// SPDX-License-Identifier: Apache-2.0
// What the keys and the mouse do in each mode of TopModel.
#include <algorithm>

#include "tools/top/model/model.h"

namespace gpushare {
namespace {

constexpr ptrdiff_t kWheelLines = 3;
constexpr size_t kHelpLines = 40;  // more than it has on a screen of usual width

}  // namespace

TopModel::Effect TopModel::press(Key key, size_t page) {
  switch (mode_) {
    case Mode::kList:
      return press_in_list(key, page);
    case Mode::kFilter:
      return press_in_filter(key);
    case Mode::kInput:
      return press_in_input(key);
    case Mode::kConfirm:
      return press_in_question(key);
    case Mode::kHelp:
      return press_in_help(key);
  }
  return {};
}

TopModel::Effect TopModel::click(const TopHit& hit) {
  if (mode_ == Mode::kFilter) mode_ = Mode::kList;
  if (mode_ != Mode::kList) return press({Key::Kind::kEscape}, 1);  // it is no answer
  say("");
  if (hit.key) return press(*hit.key, 1);
  if (hit.title) sort_by(*hit.title);
  if (hit.line) {
    if (*hit.line == selected_) fold();
    choose(*hit.line);
  }
  return {};
}

TopModel::Effect TopModel::press_in_list(Key key, size_t page) {
  say("");  // what was said about the key before
  const auto lines = static_cast<ptrdiff_t>(lines_.size());
  const auto step = static_cast<ptrdiff_t>(std::max<size_t>(1, page));
  switch (key.kind) {
    case Key::Kind::kUp:
      move(-1);
      break;
    case Key::Kind::kDown:
      move(1);
      break;
    case Key::Kind::kPageUp:
      move(-step);
      break;
    case Key::Kind::kPageDown:
      move(step);
      break;
    case Key::Kind::kWheelUp:
      move(-kWheelLines);
      break;
    case Key::Kind::kWheelDown:
      move(kWheelLines);
      break;
    case Key::Kind::kHome:
      move(-lines);
      break;
    case Key::Kind::kEnd:
      move(lines);
      break;
    case Key::Kind::kEscape:
      filter_.clear();
      rebuild();
      break;
    case Key::Kind::kEnter:
      fold();
      break;
    case Key::Kind::kBackspace:
    case Key::Kind::kClick:
      break;
    case Key::Kind::kFunction:
      return press_function(key.character);
    case Key::Kind::kCharacter:
      return press_character(key.character);
  }
  return {};
}

TopModel::Effect TopModel::press_function(int number) {
  switch (number) {
    case 1:
      return press_character('?');
    case 4:
      return press_character('/');
    case 5:
      return press_character('v');
    case 6:
      sort_by_next();
      return {};
    case 7:
      return press_character('-');
    case 8:
      return press_character('+');
    case 9:
      return press_character('s');
    case 10:
      return press_character('q');
    default:
      return {};
  }
}

TopModel::Effect TopModel::press_character(char character) {
  switch (character) {
    case 'q':
      return {.quits = true, .deed = {}};
    case '?':
    case 'h':
      help_line_ = 0;
      mode_ = Mode::kHelp;
      return {};
    case 'j':
      move(1);
      return {};
    case 'k':
      move(-1);
      return {};
    case '/':
      mode_ = Mode::kFilter;
      return {};
    case 'v':
      choices_.grouping = static_cast<Grouping>((static_cast<int>(choices_.grouping) + 1) % 3);
      rebuild();
      return {};
    case 'g':
      choices_.has_graphs = !choices_.has_graphs;
      return {};
    case ' ':
      is_paused_ = !is_paused_;
      return {};
    case 'f':
      freeze("freeze");
      return {};
    case 't':
      freeze("thaw");
      return {};
    case 's':
      ask_for_signal();
      return {};
    case 'w':
      ask_for_setting("weight");
      return {};
    case 'c':
      ask_for_setting("max");
      return {};
    case 'p':
      ask_for_setting("priority");
      return {};
    case 'm':
      ask_for_setting("memory_max");
      return {};
    case '+':
    case '=':
      return change_weight(true);
    case '-':
      return change_weight(false);
    default:
      break;
  }
  for (const FieldSpec& spec : kFields)
    if (spec.sort_key != 0 && spec.sort_key == character) sort_by(spec.field);
  return {};
}

TopModel::Effect TopModel::press_in_filter(Key key) {
  switch (key.kind) {
    case Key::Kind::kCharacter:
      filter_ += key.character;
      break;
    case Key::Kind::kBackspace:
      if (!filter_.empty()) filter_.pop_back();
      break;
    case Key::Kind::kEscape:
      filter_.clear();
      mode_ = Mode::kList;
      break;
    case Key::Kind::kEnter:
      mode_ = Mode::kList;
      break;
    default:
      return {};
  }
  rebuild();
  return {};
}

// What is there already is replaced by the first character that is typed; Backspace keeps it.
TopModel::Effect TopModel::press_in_input(Key key) {
  say("");
  switch (key.kind) {
    case Key::Kind::kCharacter:
      if (!has_typed_) input_.text.clear();
      input_.text += key.character;
      has_typed_ = true;
      return {};
    case Key::Kind::kBackspace:
      if (!input_.text.empty()) input_.text.pop_back();
      has_typed_ = true;
      return {};
    case Key::Kind::kEnter:
      break;
    default:
      mode_ = Mode::kList;
      return {};
  }
  mode_ = Mode::kList;
  if (setting_.empty()) {
    auto deed = signal_deed(target_, input_.text);
    if (deed)
      ask(*std::move(deed));
    else
      say(deed.error().message(), true);
    return {};
  }
  // The tenant as it is now, or was when it was last seen.
  const auto tenant = std::ranges::find(
      status_.snapshot.tenants, tenant_,
      [](const Numbered<TenantRecord>& numbered) { return tenant_text(numbered.record); });
  if (tenant == status_.snapshot.tenants.end()) {
    say("there is no tenant " + tenant_ + " any more", true);
    return {};
  }
  auto deed = setting_deed(tenant->record, setting_, input_.text);
  if (deed) return done(*std::move(deed));
  say(deed.error().message(), true);
  return {};
}

TopModel::Effect TopModel::press_in_question(Key key) {
  mode_ = Mode::kList;
  say("");
  if (key.kind == Key::Kind::kCharacter && (key.character == 'y' || key.character == 'Y'))
    return done(std::move(question_));
  return {};
}

TopModel::Effect TopModel::press_in_help(Key key) {
  switch (key.kind) {
    case Key::Kind::kDown:
    case Key::Kind::kPageDown:
    case Key::Kind::kWheelDown:
      help_line_ = std::min(help_line_ + 1, kHelpLines);
      return {};
    case Key::Kind::kUp:
    case Key::Kind::kPageUp:
    case Key::Kind::kWheelUp:
      help_line_ -= std::min<size_t>(help_line_, 1);
      return {};
    default:
      mode_ = Mode::kList;
      return {};
  }
}

}  // namespace gpushare
