// SPDX-License-Identifier: Apache-2.0
// TopView is the terminal under gpushare-top: it paints frames and reads keys. Only this file knows
// curses. There can be one at a time. The destructor gives the terminal back, and so does curses on
// SIGINT and SIGTERM.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "shmctl/base/error.h"
#include "tools/top/draw/frame.h"

namespace gpushare {

class TopView {
 public:
  // It fails when there is no terminal, or when curses does not know it.
  static Result<TopView> open();
  TopView(TopView&& other) noexcept;
  TopView& operator=(TopView&&) = delete;
  ~TopView();

  // As it is now; the terminal's size may change at any time.
  TopScreen screen() const;

  void paint(const Frame& frame);
  // Waits at most so long. Returns nullopt when the time is up or the size has changed: then paint
  // again.
  std::optional<Key> read_key(Nanos timeout);

 private:
  TopView() = default;

  // Returns what curses needs to show this colour on that one. Pairs are made when they are first
  // used, because some terminals have only 64.
  uint64_t pair_of(int front, int behind);

  bool is_open_ = true;
  bool has_colours_ = false;
  bool has_many_colours_ = false;  // 256
  std::map<std::pair<int, int>, short> pairs_;
  Glyphs glyphs_ = Glyphs::kAscii;
};

}  // namespace gpushare
