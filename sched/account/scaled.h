// SPDX-License-Identifier: Apache-2.0
// A part of a time, or a multiple of it, to the nearest nanosecond. Pure.
#pragma once

#include <cmath>

#include "shmctl/base/clock.h"

namespace gpushare {

inline Nanos scaled(Nanos time, double factor) {
  return Nanos(std::llround(static_cast<double>(time.count()) * factor));
}

}  // namespace gpushare
