// SPDX-License-Identifier: Apache-2.0
// How gpushare's commands talk: data to stdout, everything else to stderr, and the exit code that
// an error means.
#pragma once

#include <cstddef>
#include <string_view>

#include "shmctl/base/error.h"
#include "tools/base/cli_args.h"

namespace gpushare {

// "gpushare: MESSAGE" to stderr. Returns kExitUsage when the request was wrong, else kExitFailure.
ExitCode report(const Error& error);

struct Screen {
  size_t width = 80;         // of a terminal; 80 when the output goes elsewhere
  bool has_colours = false;  // a terminal, and neither NO_COLOR nor TERM=dumb
};
Screen stdout_screen();

enum class Tone { kPlain, kGood, kWarning, kBad, kDim };
std::string in_tone(std::string_view text, Tone tone, const Screen& screen);

// Flushes stdout. kExitFailure, with a message, when something could not be written (disk full).
ExitCode finish_output(ExitCode code);

}  // namespace gpushare
