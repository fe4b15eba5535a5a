// SPDX-License-Identifier: Apache-2.0
// The names of this machine's users.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpushare {

// Returns the number where the machine knows no name. It asks the machine's databases once for each
// user and process, and may wait for them; any thread may call.
std::string user_name(uid_t uid);

}  // namespace gpushare
