// SPDX-License-Identifier: Apache-2.0
// Whether a file can be put in another one's place by somebody else: who may write to any folder
// above it can, whoever owns the file itself. For what root loads, or has others load. Any thread.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "shmctl/base/error.h"

namespace gpushare {

struct PathPart {
  std::string path;
  uid_t uid = 0;
  mode_t mode = 0;
};

// Which of `parts`, the folders from the root down and then the file, somebody else than root and
// `own` may change, and what is allowed. Empty: none. A folder of root's with the sticky bit, such
// as /tmp, lets nobody replace what is root's in it. Pure.
std::string why_replaceable(std::span<const PathPart> parts, uid_t own);

// The same for the file of this machine that `path` leads to, and this process's user. The error,
// operation_not_permitted, names the folder.
Result<> check_owned_path(const std::string& path);

}  // namespace gpushare
