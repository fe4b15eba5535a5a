// SPDX-License-Identifier: Apache-2.0
// A search for driver objects that takes as long as the driver takes, so that on the simulated GPU
// too an agent can die before it has found the programs that were there before it.
#pragma once

#include <functional>

#include "intercept/gpu.h"

namespace gpushare::sim {

// Gives `found`, which may be outdated by then, after `cost` in pieces of the caller's budget, and
// an error at once. `spend` lets that much time pass.
std::unique_ptr<ObjectSearch> found_after(Nanos cost, Result<ObjectSearch::Found> found,
                                          std::function<void(Nanos)> spend);

}  // namespace gpushare::sim
