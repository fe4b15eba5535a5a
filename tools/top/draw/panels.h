// SPDX-License-Identifier: Apache-2.0
// Composes the panels of the GPUs at the top of gpushare-top's screen: for each its numbers, a bar
// and, where there is room, a graph of its past and a legend of its tenants. Pure.
#pragma once

#include "tools/top/draw/layout.h"
#include "tools/top/model/model.h"
#include "tools/top/model/styled.h"

namespace gpushare {

// Adds exactly layout.gpus.height lines, each at most `screen.width` columns wide.
void add_panels(Frame& frame, const TopModel& model, const TopLayout& layout,
                const TopScreen& screen);

}  // namespace gpushare
