// SPDX-License-Identifier: Apache-2.0
// Arithmetic with times that a process or a person may have made up, and times as people read them.
// Pure.
#pragma once

#include <string>

#include "shmctl/base/clock.h"

namespace gpushare {

// `to` - `from`, at most and at least what a Nanos can say.
Nanos elapsed(Time from, Time to);
// `from` + `by`, at most Time::max().
Time later(Time from, Nanos by);
// "38 s", "4 min", "3 h": for people; a tenth of a second is the least.
std::string rough_text(Nanos time);

}  // namespace gpushare
