// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gpushare {

// Makes and frees video memory from many callers at once, each with a context of its own, and
// prints how long a call took. `how` is THREADS:CALLS of parallel= and parallel-processes= in
// client.cc.
void parallel_calls(const std::string& how, bool are_processes);

}  // namespace gpushare
