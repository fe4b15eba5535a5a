// SPDX-License-Identifier: Apache-2.0
#include "tools/top/terminal.h"

#include <curses.h>
#include <langinfo.h>
#include <term.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace gpushare {
namespace {

enum Pair : short { kGreen = 1, kYellow, kRed };

attr_t attributes(Style style, bool has_colours) {
  const auto coloured = [has_colours](Pair pair, attr_t otherwise) -> attr_t {
    return has_colours ? static_cast<attr_t>(COLOR_PAIR(pair)) : otherwise;
  };
  switch (style) {
    case Style::kPlain:
      return A_NORMAL;
    case Style::kBold:
      return A_BOLD;
    case Style::kDim:
      return A_DIM;
    case Style::kGood:
      return coloured(kGreen, A_NORMAL);
    case Style::kWarning:
      return coloured(kYellow, A_BOLD);
    case Style::kBad:
      return coloured(kRed, A_NORMAL) | A_BOLD;
    case Style::kTitle:
      return A_REVERSE;
  }
  return A_NORMAL;
}

}  // namespace

Result<TopView> TopView::open() {
  constexpr const char* kStep = "open the terminal";
  std::setlocale(LC_ALL, "");
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    return make_error(std::errc::inappropriate_io_control_operation, kStep,
                      "this is none; use --once or --json");
  const char* const term = std::getenv("TERM");
  const std::string name = term == nullptr ? "" : term;
  if (name.empty())
    return make_error(std::errc::not_supported, kStep, "TERM is not set; use --once");
  if (::newterm(nullptr, stdout, stdin) == nullptr)
    return make_error(std::errc::not_supported, kStep,
                      "this machine has no description of TERM '" + name +
                          "' (on Debian in ncurses-base and ncurses-term); use --once");
  TopView view;
  if (::tigetstr("cup") == nullptr)
    return make_error(std::errc::not_supported, kStep,
                      "the cursor of TERM '" + name + "' cannot be moved; use --once");
  view.glyphs_ =
      std::string_view(::nl_langinfo(CODESET)) == "UTF-8" ? Glyphs::kUnicode : Glyphs::kAscii;
  ::cbreak();
  ::noecho();
  ::curs_set(0);
  ::keypad(stdscr, TRUE);
  ::set_escdelay(25);  // Escape is a key of ours; terminals send its sequences at once
  const char* no_colour = std::getenv("NO_COLOR");
  if ((no_colour == nullptr || *no_colour == '\0') && ::has_colors()) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(kGreen, COLOR_GREEN, -1);
    ::init_pair(kYellow, COLOR_YELLOW, -1);
    ::init_pair(kRed, COLOR_RED, -1);
    view.has_colours_ = true;
  }
  return view;
}

TopView::TopView(TopView&& other) noexcept
    : is_open_(std::exchange(other.is_open_, false)),
      has_colours_(other.has_colours_),
      glyphs_(other.glyphs_) {}

TopView::~TopView() {
  if (is_open_) ::endwin();
}

size_t TopView::width() const { return static_cast<size_t>(COLS); }
size_t TopView::height() const { return static_cast<size_t>(LINES); }

void TopView::paint(const Frame& frame) {
  ::erase();
  for (size_t y = 0; y < frame.size(); ++y) {
    ::move(static_cast<int>(y), 0);
    size_t used = 0;
    for (const Span& span : frame[y].spans) {
      ::attrset(static_cast<int>(attributes(span.style, has_colours_) |
                                 (frame[y].is_selected ? A_REVERSE : A_NORMAL)));
      ::addstr(span.text.c_str());
      used += display_width(span.text);
    }
    if (frame[y].is_selected && used < width()) {
      ::attrset(A_REVERSE);
      ::addstr(std::string(width() - used, ' ').c_str());
    }
  }
  ::attrset(A_NORMAL);
  ::refresh();
}

std::optional<Key> TopView::read_key(Nanos timeout) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(timeout, Nanos{}));
  ::timeout(static_cast<int>(ms.count()));
  const int code = ::getch();
  using Kind = Key::Kind;
  switch (code) {
    case ERR:
    case KEY_RESIZE:
      return std::nullopt;
    case KEY_UP:
      return Key{Kind::kUp};
    case KEY_DOWN:
      return Key{Kind::kDown};
    case KEY_PPAGE:
      return Key{Kind::kPageUp};
    case KEY_NPAGE:
      return Key{Kind::kPageDown};
    case KEY_HOME:
      return Key{Kind::kHome};
    case KEY_END:
      return Key{Kind::kEnd};
    case KEY_ENTER:
    case '\n':
    case '\r':
      return Key{Kind::kEnter};
    case 27:
      return Key{Kind::kEscape};
    case KEY_BACKSPACE:
    case 127:
    case '\b':
      return Key{Kind::kBackspace};
    default:
      break;
  }
  // What is typed is plain ASCII: a filter's words, and the keys.
  if (code < ' ' || code > '~') return std::nullopt;
  return Key{Kind::kCharacter, static_cast<char>(code)};
}

}  // namespace gpushare
