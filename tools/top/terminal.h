// SPDX-License-Identifier: Apache-2.0
// TopView is the terminal under gpushare-top: it paints frames and reads keys. Only this file knows
// curses. There can be one at a time. The destructor gives the terminal back, and so does curses on
// SIGINT and SIGTERM.
#pragma once

#include <optional>

#include "shmctl/base/error.h"
#include "tools/top/frame.h"

namespace gpushare {

class TopView {
 public:
  // It fails when there is no terminal, or when curses does not know it.
  static Result<TopView> open();
  TopView(TopView&& other) noexcept;
  TopView& operator=(TopView&&) = delete;
  ~TopView();

  size_t width() const;
  size_t height() const;
  Glyphs glyphs() const { return glyphs_; }

  void paint(const Frame& frame);
  // Waits at most so long. Returns nullopt when the time is up or the size has changed: then paint
  // again.
  std::optional<Key> read_key(Nanos timeout);

 private:
  TopView() = default;

  bool is_open_ = true;
  bool has_colours_ = false;
  Glyphs glyphs_ = Glyphs::kAscii;
};

}  // namespace gpushare
