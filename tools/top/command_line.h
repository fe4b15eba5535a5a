// SPDX-License-Identifier: Apache-2.0
// gpushare-top's command line and keys as data: the parser, --help, the help screen and the test of
// the man page read it.
#pragma once

#include <span>
#include <string_view>

#include "tools/base/command_line.h"

namespace gpushare {

const ProgramSpec& top_spec();

struct KeyHelp {
  std::string_view keys;
  std::string_view text;
};
std::span<const KeyHelp> top_keys();

}  // namespace gpushare
