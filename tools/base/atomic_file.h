// SPDX-License-Identifier: Apache-2.0
// Writes a file so that it is there whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

// Writes beside `path` and renames. If `path` is no regular file (/dev/null, a pipe), it writes to
// it directly. After an error no file of ours is left behind.
Result<> write_whole_file(const std::string& path, std::string_view contents);

}  // namespace gpushare
