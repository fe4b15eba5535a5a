// SPDX-License-Identifier: Apache-2.0
// The terminal under gpushare-top: paints frames, reads keys. The only file that knows curses. One
// at a time; the terminal is given back by the destructor, and by curses on SIGINT and SIGTERM.
#pragma once

#include <optional>

#include "shmctl/base/error.h"
#include "tools/top/frame.h"

namespace gpushare {

class TopView {
 public:
  // Error: the terminal is not one, or curses does not know it.
  static Result<TopView> open();
  TopView(TopView&& other) noexcept;
  TopView& operator=(TopView&&) = delete;
  ~TopView();

  size_t width() const;
  size_t height() const;
  Glyphs glyphs() const { return glyphs_; }

  void paint(const Frame& frame);
  // Waits at most so long; nullopt: time is up, or the size has changed. Paint again.
  std::optional<Key> read_key(Nanos timeout);

 private:
  TopView() = default;

  bool is_open_ = true;
  bool has_colours_ = false;
  Glyphs glyphs_ = Glyphs::kAscii;
};

}  // namespace gpushare
