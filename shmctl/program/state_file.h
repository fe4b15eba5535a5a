// SPDX-License-Identifier: Apache-2.0
// A small file in which a program keeps what it knows from one run to the next. Both functions
// block for as long as the disk does; any thread may call, for one file one at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

// A file that is missing is empty. Errors: it is no regular file, or holds more than `most_bytes`.
Result<std::string> read_state_file(const std::string& path, std::size_t most_bytes);

// Writes beside the file, waits for the disk, and renames, so that it is there whole, whenever the
// machine stops. What an earlier attempt has left beside it goes.
Result<> replace_state_file(const std::string& path, std::string_view text, mode_t mode);

}  // namespace gpushare
