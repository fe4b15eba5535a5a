// SPDX-License-Identifier: Apache-2.0
// Keeps how a person likes gpushare-top from one time to the next, in a small JSON file of theirs.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"
#include "tools/top/model/model.h"

namespace gpushare {

// Pure. A member that is missing has its default; one that is not known, or has a value that it
// cannot have, is an error that names it and what is allowed.
Result<TopChoices> parse_choices(std::string_view text);
std::string choices_text(const TopChoices& choices);

// $XDG_CONFIG_HOME/gpushare/top.json, otherwise ~/.config/gpushare/top.json. Empty: there is none,
// because neither is set, or the folder belongs to somebody else (as under sudo).
std::string choices_path();
// Where there is no file everything has its default.
Result<TopChoices> read_choices(const std::string& path);
Result<> write_choices(const std::string& path, const TopChoices& choices);

}  // namespace gpushare
