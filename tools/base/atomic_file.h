// SPDX-License-Identifier: Apache-2.0
// A file that is there whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

// Writes beside `path` and renames. What is no regular file (/dev/null, a pipe) is written to
// directly. On error nothing of ours is left behind.
Result<> write_whole_file(const std::string& path, std::string_view contents);

}  // namespace gpushare
