// SPDX-License-Identifier: Apache-2.0
// Composes gpushare-top's screen as styled text. Pure: the tests read it, and terminal.h paints it.
#pragma once

#include <span>
#include <string_view>

#include "tools/top/model/model.h"
#include "tools/top/model/styled.h"

namespace gpushare {

// Returns exactly `screen.height` lines, each at most `screen.width` columns wide.
Frame compose(const TopModel& model, const TopScreen& screen);

// What stands at this place of compose()'s screen.
TopHit hit_at(const TopModel& model, const TopScreen& screen, size_t x, size_t y);

// Returns how many lines of the list compose() shows on this screen. Page Up and Page Down move by
// that many.
size_t rows_visible(const TopModel& model, const TopScreen& screen);

}  // namespace gpushare
