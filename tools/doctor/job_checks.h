// SPDX-License-Identifier: Apache-2.0
// Jobs that are not stopped where they should be, on GPUs that take turns: one whose iterations are
// not known is stopped in mid-kernel, and so is one whose iterations take longer than their end is
// waited for. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "shmctl/plane/snapshot.h"
#include "tools/base/report.h"

namespace gpushare {

// A job that has had less of a GPU may not have shown its iterations yet.
inline constexpr std::chrono::nanoseconds kToShowIterations = std::chrono::seconds(10);
// For so long the end of an iteration is waited for at most, unless grace_ms is set
// (docs/gpushare.toml.5).
inline constexpr std::chrono::nanoseconds kLongestGrace = std::chrono::seconds(1);

// Returns the first such job, as a warning.
std::optional<Finding> find_rough_stop(const PlaneSnapshot& snapshot);

}  // namespace gpushare
