// SPDX-License-Identifier: Apache-2.0
// What the functions of the fake driver answer.
#pragma once

#include "intercept/shim/driver/table.h"

namespace gpushare::test {

inline constexpr int kFuture = 99000;
inline constexpr CUresult kFutureAnswer = static_cast<CUresult>(99000);

constexpr CUresult answer_of(int hook) { return static_cast<CUresult>(10'000 + hook); }

}  // namespace gpushare::test
