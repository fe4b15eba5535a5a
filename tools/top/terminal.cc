// SPDX-License-Identifier: Apache-2.0
#include "tools/top/terminal.h"

#include <curses.h>
#include <langinfo.h>
#include <term.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace gpushare {
namespace {

constexpr int kDefault = -1;  // the terminal's own colour

// Numbers of colours, for terminals with 256 colours and for those with 8. The last one is of
// kOthers.
constexpr std::array<int, kInks + 1> kInkOf256{75, 208, 113, 170, 221, 44, 141, 245};
constexpr std::array<int, kInks + 1> kInkOf8{COLOR_BLUE, COLOR_YELLOW, COLOR_GREEN, COLOR_MAGENTA,
                                             COLOR_CYAN, COLOR_RED,    COLOR_WHITE, kDefault};

int front_of(Style style) {
  switch (style) {
    case Style::kGood:
      return COLOR_GREEN;
    case Style::kWarning:
      return COLOR_YELLOW;
    case Style::kBad:
      return COLOR_RED;
    case Style::kTitle:  // reversed
      return COLOR_GREEN;
    case Style::kSorted:
      return COLOR_CYAN;
    default:
      return kDefault;
  }
}

attr_t attributes(Style style, bool has_colours) {
  switch (style) {
    case Style::kBold:
    case Style::kBad:
      return A_BOLD;
    case Style::kWarning:
      return has_colours ? A_NORMAL : A_BOLD;
    case Style::kDim:
      return A_DIM;
    case Style::kSorted:
      return has_colours ? A_REVERSE | A_BOLD : A_BOLD;
    case Style::kTitle:
      return A_REVERSE;
    case Style::kPlain:
    case Style::kGood:
      break;
  }
  return A_NORMAL;
}

}  // namespace

Result<TopView> TopView::open() {
  constexpr const char* kStep = "open the terminal";
  std::setlocale(LC_ALL, "");
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    return std::unexpected(Error{{}, kStep, "this is none; use --once or --json"});
  const char* const term = std::getenv("TERM");
  const std::string name = term == nullptr ? "" : term;
  if (name.empty()) return std::unexpected(Error{{}, kStep, "TERM is not set; use --once"});
  if (::newterm(nullptr, stdout, stdin) == nullptr)
    return std::unexpected(Error{{},
                                 kStep,
                                 "this machine has no description of TERM '" + name +
                                     "' (on Debian in ncurses-base and ncurses-term); use --once"});
  TopView view;
  if (::tigetstr("cup") == nullptr)
    return std::unexpected(
        Error{{}, kStep, "the cursor of TERM '" + name + "' cannot be moved; use --once"});
  view.glyphs_ =
      std::string_view(::nl_langinfo(CODESET)) == "UTF-8" ? Glyphs::kUnicode : Glyphs::kAscii;
  ::cbreak();
  ::noecho();
  ::curs_set(0);
  ::keypad(stdscr, TRUE);
  ::mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, nullptr);
  ::mouseinterval(0);  // a press counts at once
  ::set_escdelay(25);  // Escape is a key of ours; terminals send its sequences at once
  const char* no_colour = std::getenv("NO_COLOR");
  if ((no_colour == nullptr || *no_colour == '\0') && ::has_colors()) {
    ::start_color();
    ::use_default_colors();
    view.has_colours_ = true;
    view.has_many_colours_ = COLORS >= 256;
  }
  return view;
}

TopView::TopView(TopView&& other) noexcept
    : is_open_(std::exchange(other.is_open_, false)),
      has_colours_(other.has_colours_),
      has_many_colours_(other.has_many_colours_),
      pairs_(std::move(other.pairs_)),
      glyphs_(other.glyphs_) {}

TopView::~TopView() {
  if (is_open_) ::endwin();
}

TopScreen TopView::screen() const {
  return {.width = static_cast<size_t>(COLS),
          .height = static_cast<size_t>(LINES),
          .glyphs = glyphs_,
          .has_colours = has_colours_};
}

uint64_t TopView::pair_of(int front, int behind) {
  if (!has_colours_ || (front == kDefault && behind == kDefault)) return A_NORMAL;
  const auto next = static_cast<short>(pairs_.size() + 1);
  const auto [pair, is_new] = pairs_.try_emplace({front, behind}, next);
  if (is_new && (next >= std::min(COLOR_PAIRS, 256) ||
                 ::init_pair(next, static_cast<short>(front), static_cast<short>(behind)) == ERR)) {
    pairs_.erase(pair);
    return behind == kDefault ? A_NORMAL : pair_of(front, kDefault);
  }
  return COLOR_PAIR(pair->second);
}

void TopView::paint(const Frame& frame) {
  const auto& inks = has_many_colours_ ? kInkOf256 : kInkOf8;
  const auto colour = [&](Ink ink, int otherwise) { return ink > kOthers ? otherwise : inks[ink]; };
  const auto width = static_cast<size_t>(COLS);
  ::erase();
  for (size_t y = 0; y < frame.size(); ++y) {
    ::move(static_cast<int>(y), 0);
    const attr_t chosen = frame[y].is_selected ? A_REVERSE : A_NORMAL;
    size_t used = 0;
    for (const Span& span : frame[y].spans) {
      // The chosen row is plain: reversed colours are hard to read.
      const uint64_t pair = frame[y].is_selected ? A_NORMAL
                                                 : pair_of(colour(span.ink, front_of(span.style)),
                                                           colour(span.behind, kDefault));
      ::attrset(static_cast<int>(attributes(span.style, has_colours_) | chosen | pair));
      ::addstr(span.text.c_str());
      used += display_width(span.text);
    }
    if (frame[y].is_selected && used < width) {
      ::attrset(A_REVERSE);
      ::addstr(std::string(width - used, ' ').c_str());
    }
  }
  ::attrset(A_NORMAL);
  ::refresh();
}

namespace {

std::optional<Key> mouse_key() {
  MEVENT event;
  if (::getmouse(&event) != OK) return std::nullopt;
  Key key{.x = static_cast<size_t>(event.x), .y = static_cast<size_t>(event.y)};
  if ((event.bstate & BUTTON4_PRESSED) != 0)
    key.kind = Key::Kind::kWheelUp;
  else if ((event.bstate & BUTTON5_PRESSED) != 0)
    key.kind = Key::Kind::kWheelDown;
  else if ((event.bstate & (BUTTON1_PRESSED | BUTTON1_CLICKED)) != 0)
    key.kind = Key::Kind::kClick;
  else
    return std::nullopt;
  return key;
}

}  // namespace

std::optional<Key> TopView::read_key(Nanos timeout) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(timeout, Nanos{}));
  ::timeout(static_cast<int>(ms.count()));
  const int code = ::getch();
  using Kind = Key::Kind;
  if (code >= KEY_F(1) && code <= KEY_F(12))
    return Key{Kind::kFunction, static_cast<char>(code - KEY_F0)};
  if (code == KEY_MOUSE) return mouse_key();
  constexpr std::pair<int, Kind> kNamed[] = {{KEY_UP, Kind::kUp},
                                             {KEY_DOWN, Kind::kDown},
                                             {KEY_PPAGE, Kind::kPageUp},
                                             {KEY_HOME, Kind::kHome},
                                             {KEY_END, Kind::kEnd},
                                             {KEY_NPAGE, Kind::kPageDown},
                                             {KEY_ENTER, Kind::kEnter},
                                             {'\n', Kind::kEnter},
                                             {'\r', Kind::kEnter},
                                             {27, Kind::kEscape},
                                             {127, Kind::kBackspace},
                                             {'\b', Kind::kBackspace},
                                             {KEY_BACKSPACE, Kind::kBackspace}};
  for (const auto& [named, kind] : kNamed)
    if (code == named) return Key{kind};
  // What is typed is plain ASCII: a filter's words, and the keys.
  if (code < ' ' || code > '~') return std::nullopt;
  return Key{Kind::kCharacter, static_cast<char>(code)};
}

}  // namespace gpushare
